// Follows `nb events --json` in one project. Knows nothing of VS Code.
'use strict';

const { ACTOR } = require('./nb');
const { Process } = require('./process');

/** The events of one project. */
class Follower {
  /**
   * @param {string} program
   * @param {string} root
   * @param {{ begun: () => void, event: (event: any) => void, ended: (why: string) => void }} listener
   */
  constructor(program, root, listener) {
    let hasBegun = false;
    let said = '';
    this.process = new Process(program, ['--as', ACTOR, 'events', '--json'], root, {
      begun: () => {
        hasBegun = false;
        said = '';
      },
      message: found => {
        if (found.event) {
          listener.event(found);
        } else if (found.from && !hasBegun) {
          hasBegun = true;
          this.process.works();
          listener.begun();
        } else if (found.error?.message) {
          said = String(found.error.message);
        }
      },
      ended: why => {
        listener.ended(said || why);
        return true;
      },
    });
  }

  start() {
    this.process.start();
  }

  stop() {
    this.process.stop(true);
  }
}

module.exports = { Follower };
