// One project: its events, its status, and the commands of `nb` in it. Knows nothing of VS Code.
'use strict';

const path = require('node:path');
const { Activity } = require('./activity');
const { Follower } = require('./follower');
const { run } = require('./nb');

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
    this.follower = new Follower(program, root, {
      begun: () => void this.look(),
      event: event => {
        if (this.activity.take(event, Date.now()) || (event.event === 'done' && this.isLooking)) void this.look();
        listener.changed(this);
      },
      ended: why => {
        this.activity.lose();
        listener.says(`${root}: ${why}`);
        listener.changed(this);
      },
    });
  }

  start() {
    this.follower.start();
  }

  dispose() {
    this.follower.stop();
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
