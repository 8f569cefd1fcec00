//! `nb jobs JOB`: one job, and writing into the notebook what it keeps.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use crate::api::problem::Problem;
use crate::cli::Context;
use crate::cli::render::print;
use crate::cli::render::report::{head, what};
use crate::execution::salvage::{self};
use crate::project::Project;
use crate::project::jobs::{JobFolder, JobState};

impl Context {
    /// Shows one job.
    pub(crate) fn show_job(&self, folder: &JobFolder, json: bool) -> Result<ExitCode, Problem> {
        let job = folder.read()?;
        let recorded = job.state == JobState::Done || folder.has_recorder();
        if json {
            let mut object = serde_json::to_value(&job).unwrap_or_default();
            object["recorded"] = json!(recorded);
            object["folder"] = json!(folder.path());
            let _ = self.answer(&object);
            return Ok(ExitCode::SUCCESS);
        }
        let mut lines = vec![format!(
            "job {} · {} · {} · since {}",
            job.id,
            job.by,
            what(&job),
            print::moment(job.asked_at)
        )];
        for cell in &job.cells {
            lines.push(head(cell));
            if let Some(why) = &cell.unwritten {
                lines.push(format!("   its outputs are not in the notebook: {why}"));
            }
        }
        lines.extend(job.notes.iter().cloned());
        let _ = print::line(&lines.join("\n"));
        if job.cells.iter().any(|cell| cell.unwritten.is_some()) {
            let next = format!("next: nb jobs {} --write", job.id);
            print::note(&self.commands().complete(&next));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Writes what a job keeps into its notebook, or into another.
    pub(crate) async fn write_job(
        &self,
        project: &Project,
        folder: &JobFolder,
        to: Option<&Path>,
        force: bool,
        json: bool,
    ) -> Result<ExitCode, Problem> {
        let salvaged = salvage::write(project, folder, to, force).await?;
        let job = folder.read()?;
        let name = |at: usize| {
            let cell = job.cells.get(at);
            cell.and_then(|cell| cell.cell.clone())
                .unwrap_or_else(|| format!("{at} of the job"))
        };
        let (missed, written): (Vec<_>, Vec<_>) =
            salvaged.iter().partition(|one| one.missed.is_some());
        let notebook = to.map_or_else(|| job.path.clone(), PathBuf::from);
        if json {
            let cells: Vec<_> = salvaged
                .iter()
                .map(|one| {
                    json!({ "cell": job.cells.get(one.at).and_then(|it| it.cell.as_ref()),
                        "written": one.missed.is_none(), "stale": one.stale, "why": one.missed })
                })
                .collect();
            let _ = self.answer(&json!({ "job": job.id, "notebook": notebook, "cells": cells }));
        } else {
            if !written.is_empty() {
                let cells: Vec<_> = written.iter().map(|one| name(one.at)).collect();
                let _ = print::line(&format!(
                    "job {}: outputs of {} are in {}",
                    job.id,
                    cells.join(", "),
                    notebook.display()
                ));
            }
            for one in written.iter().filter(|one| one.stale) {
                print::note(&format!(
                    "cell {} says something else by now: its outputs say so",
                    name(one.at)
                ));
            }
            for one in &missed {
                let why = one.missed.as_deref().unwrap_or_default();
                print::note(&format!(
                    "outputs of {} are not written: {why}",
                    name(one.at)
                ));
            }
            if !missed.is_empty() {
                print::note(&format!(
                    "they stay in job {}: nb wait {} shows them, --force writes over what ran since",
                    job.id, job.id
                ));
            }
        }
        Ok(match missed.is_empty() {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(5),
        })
    }
}
