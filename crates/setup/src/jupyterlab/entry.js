// What JupyterLab loads: a container of webpack's module federation, written by hand.
'use strict';

/** @type {{ [name: string]: { [version: string]: { get: () => Promise<() => any> } } }} */
let scope = {};

/** A module that JupyterLab shares with its extensions. @param {string} name */
async function shared(name) {
  const [version] = Object.values(scope[name] ?? {});
  if (!version) throw new Error(`JupyterLab does not share ${name}`);
  return (await version.get())();
}

const container = {
  /** @param {typeof scope} shares */
  init(shares) {
    scope = shares;
  },
  async get() {
    const names = ['@jupyterlab/apputils', '@jupyterlab/notebook', '@lumino/widgets'];
    const [apputils, notebook, widgets] = await Promise.all(names.map(shared));
    // Notebook 7 may have none.
    const statusbar = await shared('@jupyterlab/statusbar').catch(() => undefined);
    const { plugin } = require('./extension');
    return () => ({ __esModule: true, default: plugin({ apputils, notebook, statusbar, widgets }) });
  },
};

// @ts-ignore It is JupyterLab's.
(window._JUPYTERLAB ??= {})['nb-live'] = container;
