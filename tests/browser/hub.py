"""JupyterHub, whose single-user servers have JupyterLab: the hub knows the person, and a page has no token in its address."""

import os
import pathlib
import subprocess
import sys
import time

from lab import SECONDS, say

sys.path.append(str(pathlib.Path(__file__).parent.parent / "python"))
from launch import free_ports

USER = "ann"

CONFIG = """
c = get_config()
c.JupyterHub.spawner_class = "simple"
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_port = {hub_port}
c.JupyterHub.db_url = "sqlite:///{folder}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{folder}/cookie"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.ConfigurableHTTPProxy.command = "{proxy}"
c.ConfigurableHTTPProxy.pid_file = "{folder}/proxy.pid"
c.Authenticator.allow_all = True
c.Spawner.args = ["--allow-root", "--LabApp.expose_app_in_browser=True"]
c.Spawner.cmd = ["{programs}/jupyterhub-singleuser"]
c.Spawner.notebook_dir = "{working_dir}"
c.Spawner.default_url = "/lab"
c.Spawner.environment = {environment!r}
c.SimpleLocalProcessSpawner.home_dir_template = "{home}"
"""


class Hub:
    """A hub, and the server of one person in the working directory."""

    def __enter__(self):
        self.folder = pathlib.Path(os.environ["TMPDIR"]) / "hub"
        self.folder.mkdir()
        programs = pathlib.Path(sys.executable).parent
        port, hub_port, proxy_port = free_ports(3)
        config = self.folder / "jupyterhub_config.py"
        config.write_text(
            CONFIG.format(
                port=port, hub_port=hub_port, proxy_port=proxy_port, folder=self.folder, programs=programs,
                proxy=os.environ["NB_TEST_HUB_PROXY"], working_dir=pathlib.Path.cwd(), home=os.environ["HOME"],
                environment={name: value for name, value in os.environ.items() if name != "HOME"},
            )
        )  # fmt: skip
        self.log = open(self.folder / "log", "w+")
        self.process = subprocess.Popen(
            [programs / "jupyterhub", "-f", config], cwd=self.folder,
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
        )  # fmt: skip
        self.hub = f"http://127.0.0.1:{port}"
        self.address = f"{self.hub}/user/{USER}"
        self.token = ""
        end = time.monotonic() + SECONDS
        while "JupyterHub is now running" not in pathlib.Path(self.log.name).read_text():
            assert self.process.poll() is None and time.monotonic() < end, pathlib.Path(self.log.name).read_text()
            time.sleep(0.05)
        return self

    def enter(self, page):
        """Logs the person in. The first time, the hub starts the person's server."""
        page.goto(f"{self.hub}/hub/login")
        page.fill("#username_input", USER)
        page.fill("#password_input", "a password")
        page.click("#login_submit")
        page.wait_for_url(f"{self.address}/**", timeout=1000 * SECONDS)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(SECONDS)
        say("--- the hub's log\n" + "\n".join(pathlib.Path(self.log.name).read_text().splitlines()[-60:]))
        self.log.close()
