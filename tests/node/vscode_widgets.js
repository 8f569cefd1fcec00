// The first start of a window on a kernel, with a widget in the first cell: it is drawn, it moves, and
// the next cell runs.

const assert = require('node:assert/strict');
const { Kernel, main, within, until } = require('./vscode');

const VIEW = 'application/vnd.jupyter.widget-view+json';

main(async () => {
  for (const start of ['first', 'second']) {
    const window = await Kernel.start('t.ipynb');
    const cell = await window.cell(
      'import ipywidgets\nslider = ipywidgets.IntSlider(value=42)\nslider').done;
    assert.equal(cell.reply.status, 'ok', `${start}: ${JSON.stringify(cell.reply)}`);
    const [{ data }] = cell.outputs.filter(({ type }) => type === 'execute_result');
    const id = data[VIEW].model_id;
    const { models, version } = window.widgets;
    assert.equal(version, 8, start);
    const { state } = models.get(id);
    assert.deepEqual([state._model_name, state.value], ['IntSliderModel', 42], start);

    assert.equal(await window.run('print(6 * 7)'), '42\n');
    await window.widgets.update(id, { value: 7 });
    assert.equal(await window.run('print(slider.value)'), '7\n');
    await window.run('slider.value = 9');
    await within(60, 'the new value', until(() => state.value === 9));
    await window.dispose();
  }
});
