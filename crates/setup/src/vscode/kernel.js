// The name under which VS Code's Jupyter extension knows "nb shared kernel". Pure.
'use strict';

const path = require('node:path');

/**
 * The id of a kernelspec of this machine in the Jupyter extension, as its `getKernelId` makes it (2026.6): name,
 * program, interpreter, arguments. A kernelspec of `nb` has no interpreter, which is written as "/". The list of
 * kernelspecs would tell the id, but the extension refuses it to publishers that it does not know, with a message to
 * the user.
 * @param {{ spec: string, program: string, language: string }} served the answer of `nb serve --json`
 */
function kernelId({ spec, program, language }) {
  const name = path.basename(spec);
  const words = [program, '-f', '{connection_file}'];
  const isPython = language.toLowerCase() === 'python';
  return `.${name}.${program}./.${isPython ? '' : words.join('#').toLowerCase()}`;
}

/** The language of a notebook, by the metadata that VS Code has of it. @param {{ [key: string]: any }} metadata */
function languageOf(metadata) {
  const own = metadata?.metadata ?? metadata?.custom?.metadata ?? {};
  const language = own.kernelspec?.language ?? own.language_info?.name;
  return typeof language === 'string' && /^[\w+#. -]{1,40}$/.test(language) ? language : 'python';
}

module.exports = { kernelId, languageOf };
