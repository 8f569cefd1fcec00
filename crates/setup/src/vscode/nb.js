// Finds and runs the program `nb`. Knows nothing of VS Code.
'use strict';

const { execFile } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { parsed } = require('./process');

// As `nb` records who it was.
const ACTOR = 'human (VS Code)';

// How much an answer may have, in bytes.
const LONGEST = 64 * 1024 * 1024;

/** @param {string} file */
function isProgram(file) {
  try {
    fs.accessSync(file, fs.constants.X_OK);
    return fs.statSync(file).isFile();
  } catch {
    return false;
  }
}

// Where `nb` is installed, below the home folder: an editor's PATH may be shorter than that of a shell.
const INSTALLED = ['.cargo/bin', '.local/bin'];

/**
 * The path of `nb`: the one that the user has set, else the first in PATH, else the one that `nb serve` has linked beside
 * the kernelspec's program, else where it is installed. A folder of the workspace may come from a stranger, so no program in
 * one is run, unless `nb serve` was run there; neither is one in a relative folder.
 * @param {{ set?: string, PATH?: string, data?: string, home?: string, folders: readonly string[] }} where
 * @returns {string | undefined}
 */
function find({ set, PATH = '', data = '', home, folders }) {
  const inWorkspace = (/** @type {string} */ file) => {
    let real = file;
    try { real = fs.realpathSync(file); } catch { /* it is not there */ }
    return folders.some(folder => [file, real].some(each => isBelow(folder, each)));
  };
  if (set) return path.isAbsolute(set) && isProgram(set) ? set : undefined;
  const first = (/** @type {string[]} */ places) => places.filter(path.isAbsolute).map(folder => path.join(folder, 'nb'))
    .find(file => isProgram(file) && !inWorkspace(file));
  // $XDG_DATA_HOME counts only if it is absolute.
  const own = path.isAbsolute(data) ? data : home && path.join(home, '.local/share');
  const link = own && path.join(own, 'nb/bin/nb');
  const isLinked = link && isProgram(link) && !folders.some(folder => isBelow(folder, link));
  return first(PATH.split(path.delimiter)) ?? (isLinked ? link : undefined)
    ?? first(home ? INSTALLED.map(folder => path.join(home, folder)) : []);
}

/** @param {string} folder @param {string} file */
function isBelow(folder, file) {
  const to = path.relative(folder, file);
  return to === '' || (!to.startsWith(`..${path.sep}`) && to !== '..' && !path.isAbsolute(to));
}

/** The nearest folder with a `.nb` at or above a notebook's. @param {string} notebook @returns {string | undefined} */
function projectOf(notebook) {
  for (let folder = path.dirname(notebook); ; folder = path.dirname(folder)) {
    if (fs.statSync(path.join(folder, '.nb'), { throwIfNoEntry: false })?.isDirectory()) return folder;
    if (folder === path.dirname(folder)) return undefined;
  }
}

/**
 * Runs a command of `nb` to its end; its answer.
 * @param {string} program @param {readonly string[]} words @param {string} cwd @returns {Promise<any>}
 */
function run(program, words, cwd) {
  return new Promise((resolve, reject) => {
    execFile(program, ['--as', ACTOR, ...words, '--json'], { cwd, maxBuffer: LONGEST }, (error, stdout, stderr) => {
      const answer = parsed(stdout.trim().split('\n').at(-1) ?? '');
      if (answer && !answer.error) return resolve(answer);
      const said = stderr.trim().split('\n').at(-1)?.replace(/^‣ /, '') || String(error?.message);
      const { message = said, hints = [] } = answer?.error ?? {};
      return reject(new Error([message, ...hints.slice(0, 1)].join('. ')));
    });
  });
}

module.exports = { find, isBelow, projectOf, run };
