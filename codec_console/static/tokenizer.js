// A text is cut without leaving its page: the focus stays where it is, and what is typed meanwhile is not lost. The server
// makes the page as it does without scripts; the part with the ids is taken from it.
const form = document.querySelector("form.cutting");
const told = document.getElementById("told");
let asked = 0;

async function cut() {
  const mine = (asked += 1);
  told.textContent = "";
  const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)), cache: "no-store" });
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  // Of two that were asked for, the later one counts.
  if (mine !== asked) return;
  const fresh = page.getElementById("cut");
  if (!answer.ok || !fresh) throw new Error(page.querySelector("main p")?.textContent ?? `the gateway answered with status ${answer.status}`);
  document.getElementById("cut").replaceWith(document.adoptNode(fresh));
  if (!fresh.querySelector(".side")) return;
  fresh.scrollIntoView({ block: "nearest" });
  told.textContent = "The tokens are shown below.";
}

form?.addEventListener("submit", (event) => {
  event.preventDefault();
  cut().catch((error) => { told.textContent = `Not tokenized: ${error.message}.`; });
});
