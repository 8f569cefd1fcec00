// Forwards requests to an MCP server, with the token that their sender cannot send. Prints its port.
import http from "node:http";

const [target, token] = process.argv.slice(2);
const server = http.createServer((request, response) => {
  const headers = { ...request.headers, authorization: `Bearer ${token}` };
  const forwarded = http.request(target, { method: request.method, headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  forwarded.on("error", () => response.destroy());
  response.on("close", () => forwarded.destroy());
  request.pipe(forwarded);
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
