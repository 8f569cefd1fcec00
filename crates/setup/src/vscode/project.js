// One project: its events, its status, and the commands of `nb` in it. Knows nothing of VS Code.
'use strict';

const path = require('node:path');
const { Activity } = require('./activity');
const { ACTOR, run } = require('./nb');
const { Process } = require('./process');

class Project {
  /**
   * @param {string} program
   * @param {string} root
   * @param {{ changed: (project: Project) => void, says: (text: string) => void }} listener
   */
  constructor(program, root, listener) {
    this.program = program;
    this.root = root;
    this.listener = listener;
    this.activity = new Activity();
    this.isLooking = false;
    this.looksAgain = false;
    let hasBegun = false;
    let said = '';
    // The events of the project.
    this.process = new Process(program, ['--as', ACTOR, 'events', '--json'], root, {
      begun: () => { [hasBegun, said] = [false, '']; },
      message: found => {
        if (found.event) {
          if (this.activity.take(found, Date.now()) || (found.event === 'done' && this.isLooking)) void this.look();
          listener.changed(this);
        } else if (found.from && !hasBegun) {
          hasBegun = true;
          this.process.works();
          void this.look();
        } else if (found.error?.message) {
          said = String(found.error.message);
        }
      },
      ended: why => {
        this.activity.lose();
        listener.says(`${root}: ${said || why}`);
        listener.changed(this);
        return true;
      },
    });
  }

  /** The key of a notebook in this project. @param {string} notebook */
  key(notebook) {
    return path.relative(this.root, notebook).split(path.sep).join('/');
  }

  /** Runs a command of `nb` in the project's folder. @param {readonly string[]} words */
  nb(words) {
    return run(this.program, words, this.root);
  }

  /** Reads the status; what changes meanwhile makes it be read again. */
  async look() {
    this.looksAgain = true;
    if (this.isLooking) return;
    this.isLooking = true;
    try {
      while (this.looksAgain) {
        this.looksAgain = false;
        const status = await this.nb(['status']);
        if (!this.looksAgain) this.activity.look(status);
      }
      this.listener.changed(this);
    } catch (error) {
      this.looksAgain = false;
      this.listener.says(`${this.root}: ${error instanceof Error ? error.message : error}`);
    } finally {
      this.isLooking = false;
    }
  }
}

module.exports = { Project };
