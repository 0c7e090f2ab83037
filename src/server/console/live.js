// Keeps the page current: fetches its changing part every two seconds while somebody looks, and leaves open what is open. Sends forms without leaving
// the page, and says beside them what the server refuses.
"use strict";
const live = document.getElementById("live");
const toggle = document.getElementById("toggle");
const state = document.getElementById("state");
const LOST = "The server does not answer; this is what it said last.";
let paused = false;
toggle.hidden = false;
toggle.addEventListener("click", () => {
  paused = !paused;
  toggle.textContent = paused ? "Resume updates" : "Pause updates";
  toggle.setAttribute("aria-pressed", String(paused));
});
function say(text, good) {
  state.textContent = text;
  state.className = good ? "good" : "bad";
}
function show(html) {
  const open = [...live.querySelectorAll("details[open]")].map((one) => one.id);
  live.innerHTML = html;
  open.forEach((id) => document.getElementById(id)?.setAttribute("open", ""));
}
async function update() {
  // What is being typed, or read with the keyboard, is not taken away.
  if (paused || document.hidden || live.contains(document.activeElement)) return;
  try {
    const reply = await fetch("/console/live", { cache: "no-store" });
    if (!reply.ok) throw new Error(String(reply.status));
    show(await reply.text());
    if (state.textContent === LOST) say("", true);
  } catch (error) {
    say(LOST, false);
  }
}
setInterval(update, 2000);
live.addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  const told = form.querySelector(".told");
  told.textContent = "";
  try {
    const reply = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)) });
    const page = new DOMParser().parseFromString(await reply.text(), "text/html");
    if (reply.ok) {
      show(page.getElementById("live").innerHTML);
      say("Done.", true);
      document.querySelector("#change > summary")?.focus();
    } else {
      const faults = [...page.querySelectorAll("#refusal > li")].map((one) => one.textContent);
      told.textContent = faults.join(" ") || `The server refused it (${reply.status}).`;
    }
  } catch (error) {
    say(LOST, false);
  }
});
