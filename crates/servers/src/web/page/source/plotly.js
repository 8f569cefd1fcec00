// Plots of plotly. The page loads this file for the first of them.

import "plotly-styles";
import Plotly from "plotly.js-strict-dist-min";

const config = { displaylogo: false, responsive: true, showSendToCloud: false, plotlyServerURL: "" };

export async function show(node, { data, layout, frames }) {
  await Plotly.newPlot(node, { data, layout, frames, config });
}
