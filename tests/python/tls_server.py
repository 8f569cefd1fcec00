"""Answers GET /api over TLS, with a certificate of an authority of its own; prints its port, then serves.

tls_server.py FOLDER WHEN: writes FOLDER/ca.pem. WHEN is "valid", "expired" or "early"; or the
certificate is signed by itself: "self-signed" or, as that of an authority, "self-signed-ca".
"""

import datetime
import http.server
import ipaddress
import pathlib
import ssl
import sys

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

folder, when = pathlib.Path(sys.argv[1]), sys.argv[2]
now = datetime.datetime.now(datetime.timezone.utc)
day = datetime.timedelta(days=1)
begin, end = {
    "valid": (now - day, now + day),
    "expired": (now - 3 * day, now - day),
    "early": (now + day, now + 3 * day),
}.get(when, (now - day, now + day))


def certificate(name, key, issuer, issuer_key, is_ca, has_name=False):
    names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 9 * day if is_ca else begin)
        .not_valid_after(now + 9 * day if is_ca else end)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    )
    if has_name:
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return made.sign(issuer_key, hashes.SHA256())


def pem(item):
    return item.public_bytes(serialization.Encoding.PEM)


ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
ca = certificate("nb tests", ca_key, "nb tests", ca_key, True)
own = certificate("server", key, "nb tests", ca_key, False, has_name=True)
if when.startswith("self-signed"):
    ca = own = certificate("server", key, "server", key, when == "self-signed-ca", has_name=True)
private = key.private_bytes(
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    serialization.NoEncryption(),
)
(folder / "ca.pem").write_bytes(pem(ca))
(folder / "server.pem").write_bytes(pem(own) + private)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        answers = {
            "/api": b'{"version": "2.0.0"}',
            "/api/kernelspecs": b'{"default": "python3", "kernelspecs": {}}',
            "/api/kernels": b"[]",
        }
        body = answers.get(self.path.partition("?")[0], b"")
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(folder / "server.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
