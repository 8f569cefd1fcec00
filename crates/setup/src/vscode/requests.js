// The person's own requests in one tab, by what VS Code shows of its cells. Pure: callers pass the time.
'use strict';

// VS Code shows a cell whose request was withdrawn, or whose outputs were cleared, like a cell that waits. Such a cell
// counts as waiting until the kernel was idle for so long, in milliseconds: within this time VS Code starts a kernel or
// gives up.
const DOUBT = 60_000;

class Requests {
  constructor() {
    /** @type {Map<import('vscode').NotebookCell, 'waits' | 'runs'>} */
    this.cells = new Map();
    // When a request was last seen to wait or to run, and when one ended.
    this.last = -Infinity;
    this.ended = -Infinity;
  }

  /**
   * Takes a cell's new summary: it is empty when the cell is queued, has the number of the run when that begins, and
   * its success when it ends. Returns whether a request has ended.
   * @param {import('vscode').NotebookCell} cell
   * @param {import('vscode').NotebookCellExecutionSummary} summary
   * @param {number} now
   */
  take(cell, summary, now) {
    const isOver = typeof summary.success === 'boolean';
    if (isOver) {
      this.cells.delete(cell);
      this.ended = now;
    } else {
      this.cells.set(cell, summary.executionOrder === undefined ? 'waits' : 'runs');
      this.last = now;
    }
    return isOver;
  }

  /** The kernel was replaced or has ended: what ran on it runs no more. */
  lose() {
    for (const cell of this.cells.keys()) this.cells.set(cell, 'waits');
  }

  /**
   * For how long, in milliseconds, a request waits or runs at least; 0 if there is none.
   * @param {number} now
   * @param {boolean} isIdle whether the kernel is known to be idle
   */
  openFor(now, isIdle) {
    if (!this.cells.size) return 0;
    if (!isIdle || [...this.cells.values()].includes('runs')) this.last = now;
    const left = this.last + DOUBT - now;
    if (left > 0) return left;
    this.cells.clear();
    return 0;
  }
}

module.exports = { DOUBT, Requests };
