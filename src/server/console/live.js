// Keeps the page current: fetches its changing part every two seconds while somebody looks, and leaves open what is open.
"use strict";
const live = document.getElementById("live");
const toggle = document.getElementById("toggle");
const state = document.getElementById("state");
let paused = false;
toggle.hidden = false;
toggle.addEventListener("click", () => {
  paused = !paused;
  toggle.textContent = paused ? "Resume updates" : "Pause updates";
  toggle.setAttribute("aria-pressed", String(paused));
});
async function update() {
  // What is being typed, or read with the keyboard, is not taken away.
  if (paused || document.hidden || live.contains(document.activeElement)) return;
  try {
    const reply = await fetch("/console/live", { cache: "no-store" });
    if (!reply.ok) throw new Error(String(reply.status));
    const open = [...live.querySelectorAll("details[open]")].map((one) => one.id);
    live.innerHTML = await reply.text();
    open.forEach((id) => document.getElementById(id)?.setAttribute("open", ""));
    state.textContent = "";
  } catch (error) {
    state.textContent = "The server does not answer; this is what it said last.";
  }
}
setInterval(update, 2000);
