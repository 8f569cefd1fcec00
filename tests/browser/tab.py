"""A notebook in a tab of JupyterLab, as a person works in it."""

import re
import uuid

from lab import APP, SECONDS, expect

PLAIN = "Python 3 (ipykernel)"

# The tab of what has changes that are not saved.
DIRTY = ".jp-mod-current.jp-mod-dirty"

READY = """async (path) => {
    await window.jupyterapp.restored;
    const notebook = window.jupyterapp.shell.currentWidget;
    if (notebook?.context?.path !== path) return false;
    await notebook.context.ready;
    await notebook.sessionContext.ready;
    await notebook.sessionContext.session?.kernel?.info;
    return true;
}"""


IDLE = "() => window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'"


class Notebook:
    """A notebook that is open in a tab; `asked` is the kernel to choose where JupyterLab asks for one at once."""

    def __init__(self, page, server, path, asked=None):
        self.page = page
        # A workspace that nobody has used: nothing of an earlier page is put back while one types.
        if hasattr(server, "enter"):
            server.enter(page)
        workspace = f"{server.address}/lab/workspaces/{uuid.uuid4().hex}"
        place = f"{workspace}/tree" if APP == "jupyterlab" else f"{server.address}/notebooks"
        self.page.goto(f"{place}/{path}?token={server.token}")
        self.panel = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
        expect(self.panel.locator(".jp-Cell").first).to_be_visible()
        if asked:
            self._select(asked)
        # What is run while the page is still being put together is forgotten again.
        page.wait_for_function("window.jupyterapp")
        self._is_ready(path)

    def opens(self, path):
        """Opens another notebook of the folder in a tab of the same page, which is much cheaper than a page."""
        # The list of files is read again every ten seconds.
        self.page.locator("jp-button[data-command='filebrowser:refresh']").click()
        self.page.locator(".jp-DirListing-item", has_text=path).dblclick()
        self._is_ready(path)

    def closes(self):
        """Closes the tab that is shown."""
        self.page.locator(".jp-mod-current .lm-TabBar-tabCloseIcon").click()

    def shows(self, path):
        """Goes to the tab of a notebook that is open."""
        self.page.locator(".lm-TabBar-tab", has_text=path).first.click()
        self._is_ready(path)

    def _is_ready(self, path):
        self.page.wait_for_function(READY, arg=path, timeout=1000 * SECONDS)
        expect(self.panel.locator(".jp-Cell").first).to_be_visible()

    def choose(self, kernel):
        """Chooses a kernel in the dialog that a click on the kernel's name opens."""
        expect(self.panel.locator(".jp-Toolbar-kernelName")).to_have_text(PLAIN)
        self.panel.locator(".jp-Toolbar-kernelName").click()
        self._select(kernel)
        self.is_idle()

    def _select(self, kernel):
        dialog = self.page.locator(".jp-Dialog")
        dialog.locator("select").select_option(label=kernel)
        dialog.locator(".jp-mod-accept").click()
        expect(self.panel.locator(".jp-Toolbar-kernelName")).to_have_text(kernel)

    def is_idle(self):
        if APP != "jupyterlab":
            # It has no status bar.
            self.page.wait_for_function(IDLE, timeout=1000 * SECONDS)
            return
        # The status bar tells of the connection too.
        expect(self.page.locator("#jp-main-statusbar")).to_contain_text("| Idle")

    def cell(self, index):
        return self.panel.locator(".jp-Cell").nth(index)

    def run(self, index):
        """Runs a cell by Shift-Enter; the cell is returned, running."""
        cell = self.cell(index)
        cell.locator(".cm-content").click()
        cell.locator(".cm-content").press("Shift+Enter")
        return cell

    def ends(self, index, text, count=r"\[\d+\]:"):
        """Waits until the cell has ended with this in its outputs."""
        expect(self.cell(index).locator(".jp-OutputArea")).to_contain_text(text)
        expect(self.cell(index).locator(".jp-InputPrompt")).to_have_text(re.compile(count))

    def button(self, name):
        self.panel.locator(f"[data-jp-item-name={name}]").click()

    def source(self, index):
        return self.cell(index).locator(".cm-content")

    def write(self, index, text):
        """Types a text in place of a cell's; it is not saved yet."""
        self.source(index).click()
        self.source(index).press("Control+a")
        self.page.keyboard.type(text)
        expect(self.page.locator(DIRTY)).to_be_visible()

    def save(self):
        self.page.keyboard.press("Control+s")

    def saves(self):
        """Saves, and waits until the server has the file: a tab without changes does not show when that is."""
        is_save = lambda answer: answer.request.method == "PUT" and "/api/contents/" in answer.url
        with self.page.expect_response(is_save, timeout=1000 * SECONDS):
            self.save()
        self.is_saved()

    def is_saved(self):
        expect(self.page.locator(DIRTY)).to_have_count(0)

    def answers(self, button):
        """Presses a button of the dialog that has come up."""
        dialog = self.page.locator(".jp-Dialog")
        dialog.get_by_role("button", name=button).click()
        expect(dialog).to_have_count(0)

    def menu(self, *names):
        for name in names:
            self.page.get_by_role("menuitem", name=name, exact=True).click()
