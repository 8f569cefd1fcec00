// Lets a test ask the workbench: it evaluates the JavaScript that is posted to it, with `vscode` in scope. The file that
// NB_TEST_DRIVER names gets its port.
'use strict';

const fs = require('node:fs');
const http = require('node:http');
// eslint-disable-next-line no-unused-vars
const vscode = require('vscode');

exports.activate = context => {
  const server = http.createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    let answer;
    try {
      answer = { value: await eval(`(async () => { ${Buffer.concat(parts)} })()`) };
    } catch (error) {
      answer = { error: String(error?.stack ?? error) };
    }
    response.end(JSON.stringify(answer));
  });
  server.listen(0, '127.0.0.1', () => {
    const file = process.env.NB_TEST_DRIVER;
    fs.writeFileSync(`${file}.new`, String(server.address().port));
    fs.renameSync(`${file}.new`, file);
  });
  context.subscriptions.push({ dispose: () => server.close() });
};
