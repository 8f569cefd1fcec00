//! Follows the kernel, by `state.json` and by its process.

use std::rc::Rc;

use super::Shell;
use crate::kernel::process::Process;
use crate::proxy::attachment::Attachment;
use crate::proxy::messages;
use crate::proxy::snapshot::{KernelState, Snapshot};
use crate::proxy::target::LiveKernel;
use crate::route::{Ending, FrontEnd, Kernel};
use crate::wire::Channel;

impl Shell {
    /// Like [`Shell::refresh`], soon: one read serves all calls until it begins.
    pub(super) fn refresh_soon(&self) {
        if self.state_reads.queue_read() {
            self.spawn(async |shell| shell.refresh().await);
        }
    }

    /// Reads the state and adopts it.
    pub(super) async fn refresh(&self) {
        let permit = self.state_reads.work.acquire().await;
        let number = self.state_reads.begin();
        let Some(attachment) = self.attachment() else {
            return;
        };
        let read = attachment.read(&permit).await;
        if !self.state_reads.is_latest(number) {
            // The state was read on this thread in the meantime, so this read may be older.
            self.state_reads.request();
        } else if self.serves(&attachment) {
            self.take_snapshot(&attachment, read);
        }
    }

    /// Reads the state on this thread while there is no kernel, so that no request is answered with an error
    /// that is out of date. No message passes then that would be delayed by the file access.
    pub(super) fn refresh_before_an_error(&self) {
        let is_ended = matches!(self.bridge.borrow().kernel(), Kernel::Ended(_));
        if let Some(attachment) = self.attachment().filter(|_| is_ended)
            && !attachment.is_unreachable.get()
        {
            self.state_reads.record_main_thread_read();
            self.take_snapshot(&attachment, attachment.target().snapshot());
        }
    }

    /// Returns whether this process is still attached to that session.
    pub(super) fn serves(&self, attachment: &Rc<Attachment>) -> bool {
        let current = self.attachment();
        current.is_some_and(|current| Rc::ptr_eq(&current, attachment))
    }

    /// Stores the result of a read, except the change of the kernel.
    pub(super) fn store_flags(&self, attachment: &Attachment, snapshot: &Snapshot) {
        attachment.store_flags(snapshot);
        self.bridge.borrow_mut().set_info(snapshot.info.clone());
    }

    fn take_snapshot(&self, attachment: &Attachment, read: anyhow::Result<Snapshot>) {
        match read {
            Ok(snapshot) => {
                self.store_flags(attachment, &snapshot);
                // A kernel stays usable although its record was removed.
                if !snapshot.is_recorded && self.is_kernel_alive() {
                    let key = attachment.target().key;
                    let text = format!("{key} is not in state.json any more, but its kernel lives");
                    return attachment.read_failures.report("removed", &text);
                }
                attachment
                    .read_failures
                    .recovered("the kernel's record is read again");
                self.adopt(snapshot.kernel);
            }
            // The last state stays valid until a read succeeds.
            Err(error) => {
                let text = format!("{error:#}");
                attachment.read_failures.report(&text, &text);
            }
        }
    }

    fn is_kernel_alive(&self) -> bool {
        let links = self.links();
        let process = links.as_ref().and_then(|it| it.kernel().process.as_ref());
        process.is_some_and(Process::is_alive)
    }

    /// Returns whether the kernel is being started or restarted.
    pub(super) fn is_awaited(&self) -> bool {
        *self.bridge.borrow().kernel() == Kernel::Awaited
    }

    /// Acts on the present state of the kernel.
    pub(super) fn adopt(&self, kernel: KernelState) {
        let Some(attachment) = self.attachment() else {
            return;
        };
        if !attachment.accepts(&kernel) {
            return;
        }
        match kernel {
            KernelState::Live(kernel) => {
                attachment.failure.take();
                let links = self.links();
                let is_same = links.is_some_and(|links| links.kernel().is_same(&kernel));
                if !(is_same && self.is_live()) {
                    self.connect(&attachment, *kernel);
                }
            }
            KernelState::Awaited(ended) => {
                if self.is_awaited() {
                    return;
                }
                tracing::info!("the kernel is being started; requests wait for it");
                let ending = messages::replaced(&attachment.target(), ended.as_ref());
                self.change(Kernel::Awaited, &ending);
            }
            KernelState::Died(ended) => {
                let (target, ended) = (&attachment.target(), ended.as_ref());
                let failure = attachment.failure.borrow().clone();
                let kernel = if self.may_start(&attachment) && self.has_person() {
                    Kernel::Died(
                        failure.unwrap_or_else(|| messages::died_until_next_cell(target, ended)),
                    )
                } else {
                    Kernel::Ended(failure.unwrap_or_else(|| messages::died(target, ended)))
                };
                self.end(kernel);
            }
            KernelState::None(ending) => {
                let failure = attachment.failure.borrow().clone();
                let ending = match failure {
                    Some(failure) if !attachment.is_recorded() => failure,
                    _ => ending,
                };
                self.end(Kernel::Ended(ending));
            }
        }
    }

    /// Returns whether a person runs the cells and can read which variables are lost: in VS Code, under a
    /// Jupyter server, or in a console on a terminal.
    fn has_person(&self) -> bool {
        let on_terminal = || {
            self.launch
                .parent
                .as_ref()
                .is_some_and(Process::has_terminal)
        };
        match self.launch.front_end.kind {
            FrontEnd::VsCode | FrontEnd::Jupyter => true,
            FrontEnd::Other => on_terminal() && !self.bridge.borrow().is_batch(),
        }
    }

    /// Reports to the bridge that the kernel has ended.
    fn end(&self, kernel: Kernel) {
        if *self.bridge.borrow().kernel() == kernel {
            return;
        }
        if let Kernel::Died(ending) | Kernel::Ended(ending) = kernel.clone() {
            tracing::warn!("{}", ending.text);
            self.change(kernel, &ending);
        }
    }

    fn change(&self, kernel: Kernel, ending: &Ending) {
        if let Some(attachment) = self.attachment() {
            attachment.outputs.kernel_ended(self.published());
        }
        let unsent = self.take_unsent();
        self.route(|bridge, now| bridge.set_kernel(now, kernel, ending, unsent));
    }

    fn connect(&self, attachment: &Attachment, kernel: LiveKernel) {
        attachment.is_unreachable.set(false);
        let unsent = self.take_unsent();
        let previous = self.links();
        let previous = previous.as_ref();
        let is_another = previous.is_some_and(|links| !links.kernel().is_same(&kernel));
        // Another kernel may count its generations from one, for example when a notebook begins to share one;
        // the bridge's numbers never fall.
        let last = self.bridge_generation.get();
        let number = if previous.is_some() && !is_another {
            last
        } else {
            kernel.generation.max(last + 1)
        };
        self.bridge_generation.set(number);
        if is_another || (number != last && last > 0) {
            self.counters.count_restart();
        }
        if is_another || number != last {
            attachment.outputs.kernel_ended(self.published());
        }
        let notebook = &attachment.target().key;
        attachment
            .journal
            .set_generation(number, &kernel.owner, kernel.generation, notebook);
        tracing::info!(
            generation = kernel.generation,
            pid = kernel.process.as_ref().map(|process| process.pid),
            "connecting to the kernel at {}",
            kernel.connection.endpoint(Channel::Shell)
        );
        if is_another || attachment.has_missed_kernel.take() {
            let owner = previous.map(|links| &*links.kernel().owner);
            let notice = messages::replacement_notice(&attachment.target(), &kernel, owner);
            tracing::info!("{notice}");
            self.bridge.borrow_mut().set_notice(notice);
        } else if previous.is_none()
            && self.launch.front_end.kind == FrontEnd::VsCode
            && let Some(job) = &kernel.handed_over
        {
            let notice = messages::hand_over_notice(job);
            tracing::info!("{notice}");
            self.bridge.borrow_mut().set_notice(notice);
        }
        if let Some(process) = kernel.process.clone() {
            let changed = std::sync::Arc::clone(self.state_reads.notification());
            tokio::task::spawn_local(async move {
                process.death().await;
                changed.notify_one();
            });
        }
        let live = Kernel::Live {
            generation: number,
            interrupt: kernel.interrupt,
            info: kernel.info.clone(),
        };
        let widgets = kernel.widgets.clone();
        let ending = messages::replaced(&attachment.target(), kernel.previous_end.as_ref());
        self.dial(kernel);
        self.route(|bridge, now| {
            // Set first, since a widget probe may be among the held requests.
            bridge.set_widgets(widgets);
            bridge.set_kernel(now, live, &ending, unsent);
        });
    }

    /// Writes the kernel's version of ipywidgets into the state, for proxies that find the kernel busy.
    pub(super) fn remember_widgets(&self, version: String) {
        let (Some(attachment), Some(links)) = (self.attachment(), self.links()) else {
            return;
        };
        let kernel = links.kernel();
        let (owner, generation) = (kernel.owner.clone(), kernel.generation);
        self.spawn(async move |shell| {
            let permit = shell.state_reads.work.acquire().await;
            let target = attachment.target();
            let written = permit.run(move || target.remember_widgets(&owner, generation, &version));
            let written: anyhow::Result<()> =
                written.await.map_err(Into::into).and_then(|it| Ok(it?));
            if let Err(error) = written {
                tracing::warn!(
                    "the version of ipywidgets could not be written to state.json: {error:#}"
                );
            }
        });
    }
}
