//! Following the kernel: `state.json` and its process say what becomes of it.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Notify;

use super::LOCKS_WITHIN;
use super::attachment::Attachment;
use super::links::Links;
use super::messages;
use super::shell::Shell;
use super::start::Pending;
use super::storage::{FileWork, Turn};
use super::target::{Found, LiveKernel, Look};
use crate::kernel::process::Process;
use crate::lifecycle::death::note_death;
use crate::route::{ClientId, Ending, FrontEnd, Kernel};
use crate::wire::{Channel, Verified};

/// Messages that no kernel has got, to be sent to the next one.
type Unsent = Vec<(ClientId, Channel, Verified)>;

/// Reads of `state.json`: asked for by anybody, done on another thread one at a time.
#[derive(Debug, Default)]
pub(super) struct StateReads {
    pub(super) work: FileWork,
    /// Notified from the watcher's thread too.
    wanted: Arc<Notify>,
    /// A read is asked for and has not begun.
    is_waiting: Cell<bool>,
    /// How often the state was read on this thread: what another thread has read before is older.
    read_here: Cell<u64>,
}

impl StateReads {
    /// Returns what is notified where `state.json` or the kernel's process may have changed.
    pub(super) fn wanted(&self) -> Arc<Notify> {
        Arc::clone(&self.wanted)
    }

    fn want(&self) {
        self.wanted.notify_one();
    }

    /// Returns when a read is wanted.
    pub(super) async fn is_wanted(&self) {
        self.wanted.notified().await;
    }

    /// Returns whether no other read waits.
    fn begin_to_wait(&self) -> bool {
        !self.is_waiting.replace(true)
    }

    /// Begins a read; the number says later whether it is the latest.
    fn begin(&self) -> u64 {
        self.is_waiting.set(false);
        self.read_here.get()
    }

    fn is_latest(&self, number: u64) -> bool {
        self.read_here.get() == number
    }

    fn read_here(&self) {
        self.read_here.update(|count| count + 1);
    }
}

impl Shell {
    /// Looks at `state.json` and the kernel's process again, soon.
    pub(super) fn look_again(&self) {
        self.state_reads.want();
    }

    /// As [`Shell::refresh`], soon: once for all who ask until then.
    pub(super) fn refresh_soon(&self) {
        if self.state_reads.begin_to_wait() {
            self.spawn(async |shell| shell.refresh().await);
        }
    }

    /// Reads the state and takes what the kernel is now.
    pub(super) async fn refresh(&self) {
        let turn = self.state_reads.work.turn().await;
        let number = self.state_reads.begin();
        let Some(attachment) = self.attachment() else {
            return;
        };
        let look = self.look_closely(&attachment, &turn).await;
        let is_served = self
            .attachment()
            .is_some_and(|now| Rc::ptr_eq(&now, &attachment));
        if !self.state_reads.is_latest(number) {
            // The state was read on this thread since: this may be older.
            self.look_again();
        } else if is_served {
            self.take_look(&attachment, look);
        }
    }

    /// Reads the state on this thread, where there is no kernel: a request is not answered with an error that was
    /// true a moment ago, and no message passes that would wait for the files.
    pub(super) fn refresh_before_an_error(&self) {
        let is_ended = matches!(self.bridge.borrow().kernel(), Kernel::Ended(_));
        if let Some(attachment) = self.attachment().filter(|_| is_ended)
            && !attachment.is_unreachable.get()
        {
            self.state_reads.read_here();
            self.take_look(&attachment, attachment.target.look_closely());
        }
    }

    fn take_look(&self, attachment: &Attachment, look: anyhow::Result<Look>) {
        match look {
            Ok(look) => {
                attachment.note(&look);
                // The removal of a record does not end its kernel.
                if matches!(look.found, Found::None(_)) && self.kernel_lives() && !look.is_recorded
                {
                    let key = &attachment.target.key;
                    let text = format!("{key} is not in state.json any more, but its kernel lives");
                    return attachment.unread.is("removed", &text);
                }
                attachment
                    .unread
                    .is_over("the kernel's record is read again");
                self.adopt(look.found);
            }
            // What is known stays true until something better can be read.
            Err(error) => {
                let text = format!("{error:#}");
                attachment.unread.is(&text, &text);
            }
        }
    }

    /// Reads what is known of the kernel; writes down that it has exited unexpectedly, where no one else has.
    async fn look_closely(&self, attachment: &Attachment, turn: &Turn<'_>) -> anyhow::Result<Look> {
        let read = async || {
            let target = attachment.target.clone();
            turn.run(move || target.look_closely()).await?
        };
        let mut look = read().await?;
        if attachment.pending.get() == Pending::Nothing
            && let Some((owner, session)) = look.unnoticed.take()
        {
            // In whose cell it died is read in the journal.
            let _ = tokio::time::timeout(LOCKS_WITHIN, attachment.journal.written()).await;
            let project = attachment.target.project.clone();
            let noted = turn.run(move || note_death(&project, &owner, session));
            match noted.await.map_err(Into::into).and_then(|it| Ok(it?)) {
                Ok(_) => attachment
                    .unwritten
                    .is_over("the kernel's end is written down"),
                Err::<_, anyhow::Error>(error) => {
                    let text = format!("the kernel's end could not be written down: {error:#}");
                    attachment.unwritten.is("the end", &text);
                }
            }
            look = read().await?;
        }
        Ok(look)
    }

    fn kernel_lives(&self) -> bool {
        let links = self.links.borrow();
        let process = links
            .as_ref()
            .and_then(|links| links.kernel().process.as_ref());
        process.is_some_and(|process| process.is_alive())
    }

    /// Returns whether a kernel is being started or restarted.
    pub(super) fn is_awaited(&self) -> bool {
        *self.bridge.borrow().kernel() == Kernel::Awaited
    }

    /// Returns whether anybody wants to hear the kernel.
    ///
    /// The requests of one that is restarted or shut down have had their end when it is
    /// interrupted for that; one that exited unexpectedly is heard to its last message.
    pub(super) fn listens(&self) -> bool {
        matches!(
            self.bridge.borrow().kernel(),
            Kernel::Live { .. } | Kernel::Died(_)
        )
    }

    /// Takes what the kernel is now.
    pub(super) fn adopt(&self, found: Found) {
        let Some(attachment) = self.attachment() else {
            return;
        };
        if !attachment.pending.get().admits(&found) {
            return;
        }
        let before = self.links.borrow().clone();
        match found {
            Found::Live(kernel) => {
                attachment.failure.take();
                let live = matches!(self.bridge.borrow().kernel(), Kernel::Live { .. });
                let same = before
                    .as_ref()
                    .is_some_and(|links| links.kernel().is_same(&kernel));
                if !(live && same) {
                    self.connect(&attachment, *kernel, before.as_deref());
                }
            }
            Found::Awaited => {
                if self.is_awaited() {
                    return;
                }
                tracing::info!("the kernel is being started; requests wait for it");
                self.change(
                    Kernel::Awaited,
                    &messages::replaced(&attachment.target),
                    before.as_ref(),
                );
            }
            Found::Died(ended) => {
                let (target, ended) = (&attachment.target, ended.as_ref());
                let failure = attachment.failure.borrow().clone();
                let kernel = if self.may_start_again(&attachment) && self.has_person() {
                    Kernel::Died(failure.unwrap_or_else(|| messages::died_for_now(target, ended)))
                } else {
                    Kernel::Ended(failure.unwrap_or_else(|| messages::died(target, ended)))
                };
                self.end(kernel, before.as_ref());
            }
            Found::None(ending) => {
                let failure = attachment.failure.borrow().clone();
                let ending = match failure {
                    Some(failure) if !attachment.is_recorded.get() => failure,
                    _ => ending,
                };
                self.end(Kernel::Ended(ending), before.as_ref());
            }
        }
    }

    /// Returns whether a person runs the cells, who reads what is gone with a kernel that died: of VS
    /// Code, a Jupyter server, a console on a terminal.
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

    /// Takes the end of the kernel.
    fn end(&self, kernel: Kernel, before: Option<&Rc<Links>>) {
        if *self.bridge.borrow().kernel() == kernel {
            return;
        }
        if let Kernel::Died(ending) | Kernel::Ended(ending) = kernel.clone() {
            tracing::warn!("{}", ending.text);
            self.change(kernel, &ending, before);
        }
    }

    fn change(&self, kernel: Kernel, ending: &Ending, before: Option<&Rc<Links>>) {
        if let Some(attachment) = self.attachment() {
            attachment.outputs.kernel_ended(self.published());
        }
        let unsent = take_unsent(before.map(Rc::as_ref));
        self.route(|bridge, now| bridge.kernel_is(now, kernel, ending, unsent));
    }

    fn connect(&self, attachment: &Attachment, kernel: LiveKernel, before: Option<&Links>) {
        attachment.is_unreachable.set(false);
        let unsent = take_unsent(before);
        let is_another = before.is_some_and(|links| !links.kernel().is_same(&kernel));
        // Another kernel may count its generations from one, as where a notebook begins to share one;
        // the bridge's numbers only ever rise.
        let last = self.number.get();
        let number = if before.is_some() && !is_another {
            last
        } else {
            kernel.generation.max(last + 1)
        };
        self.number.set(number);
        if is_another || (number != last && last > 0) {
            self.count.restarted();
        }
        if is_another || number != last {
            attachment.outputs.kernel_ended(self.published());
        }
        let notebook = &attachment.target.key;
        attachment
            .journal
            .follow(number, &kernel.owner, kernel.generation, notebook);
        tracing::info!(
            generation = kernel.generation,
            pid = kernel.process.as_ref().map(|process| process.pid),
            "connects to the kernel at {}",
            kernel.connection.endpoint(Channel::Shell)
        );
        if is_another || attachment.missed.take() {
            let owner = before.map(|links| &*links.kernel().owner);
            let notice = messages::notice(&attachment.target, &kernel, owner);
            tracing::info!("{notice}");
            self.bridge.borrow_mut().set_notice(notice);
        } else if before.is_none()
            && self.launch.front_end.kind == FrontEnd::VsCode
            && let Some(job) = &kernel.handed_over
        {
            let notice = messages::handed_over(job);
            tracing::info!("{notice}");
            self.bridge.borrow_mut().set_notice(notice);
        }
        if let Some(process) = kernel.process.clone() {
            let look = self.state_reads.wanted();
            tokio::task::spawn_local(async move {
                process.death().await;
                look.notify_one();
            });
        }
        let live = Kernel::Live {
            generation: number,
            interrupt: kernel.interrupt,
            info: kernel.info.clone(),
        };
        let widgets = kernel.widgets.clone();
        let links = Links::connect(kernel, self.launch.id.clone(), &self.me);
        *self.links.borrow_mut() = Some(Rc::new(links));
        let ending = messages::replaced(&attachment.target);
        self.route(|bridge, now| {
            // First, since the probe may be among what is held.
            bridge.set_widgets(widgets);
            bridge.kernel_is(now, live, &ending, unsent);
        });
    }

    /// Writes the version of ipywidgets that this kernel has printed into the state, for proxies that find it busy.
    pub(super) fn remember_widgets(&self, version: String) {
        let links = self.links.borrow();
        let (Some(attachment), Some(links)) = (self.attachment(), &*links) else {
            return;
        };
        let kernel = links.kernel();
        let (owner, generation) = (kernel.owner.clone(), kernel.generation);
        self.spawn(async move |shell| {
            let turn = shell.state_reads.work.turn().await;
            let target = attachment.target.clone();
            let written = turn.run(move || target.remember_widgets(&owner, generation, &version));
            let written: anyhow::Result<()> =
                written.await.map_err(Into::into).and_then(|it| Ok(it?));
            if let Err(error) = written {
                tracing::warn!(
                    "the version of ipywidgets could not be written to state.json: {error:#}"
                );
            }
        });
    }

    /// The kernel's iopub is connected.
    pub(super) fn reached(&self) {
        let live = matches!(self.bridge.borrow().kernel(), Kernel::Live { .. });
        if live {
            self.route(|bridge, now| bridge.iopub_up(now));
        } else {
            self.look_again();
        }
    }

    /// A kernel of which only the sockets are known does not answer on them.
    pub(super) fn unreachable(&self, error: &std::io::Error) {
        let live = matches!(self.bridge.borrow().kernel(), Kernel::Live { .. });
        if let Some(attachment) = self.attachment().filter(|_| live) {
            let links = self.links.borrow();
            let process = links
                .as_ref()
                .and_then(|links| links.kernel().process.clone());
            drop(links);
            let pid = process.map(|process| process.pid);
            attachment.is_unreachable.set(true);
            self.adopt(Found::None(messages::unreachable(
                &attachment.target,
                error,
                pid,
            )));
        }
    }
}

fn take_unsent(links: Option<&Links>) -> Unsent {
    links.map(Links::take_unsent).unwrap_or_default()
}
