// Parts marked `data-live` are taken anew from the page itself every other second, while its tab is in sight; a list marked
// `data-live-list` gets the parts that are new, and loses those that are gone.
// The server makes them; here nothing is turned into markup that the page would not hold.
import { say } from "./news.js";

const PAUSE = 2000;
// The page that is shown whole, as the server named it.
let shown = null;

async function refresh() {
  // A page that can go on elsewhere says where.
  const address = document.querySelector("[data-live-address]")?.dataset.liveAddress ?? location.href;
  const headers = { accept: "text/html", ...(shown && { "if-none-match": shown }) };
  const answer = await fetch(address, { headers, cache: "no-store" });
  if (answer.status === 304) return true;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (!answer.ok || answer.redirected) {
    const why = answer.redirected ? "You are signed out." : `The gateway answered with status ${answer.status}.`;
    say(page.querySelector("main .note, main [role=alert]")?.textContent ?? why, [address, "Load the page again"]);
    return false;
  }
  let whole = true;
  for (const list of document.querySelectorAll("[data-live-list][id]")) whole = grow(list, page) && whole;
  for (const part of document.querySelectorAll("[data-live][id]")) whole = renew(part, page.getElementById(part.id)) && whole;
  shown = whole ? answer.headers.get("etag") : null;
  return true;
}

// What somebody works in stays: a focus or a selection would be lost.
function isBusy(part) {
  const selection = document.getSelection();
  return part.contains(document.activeElement) || (selection && !selection.isCollapsed && selection.containsNode(part, true));
}

// Give whether the part is now as it should be.
function renew(part, fresh) {
  if (!fresh) return true;
  // What was opened stays open.
  const opened = part.querySelectorAll("details");
  fresh.querySelectorAll("details").forEach((each, n) => { each.open = opened[n]?.open ?? each.open; });
  if (part.isEqualNode(fresh)) return true;
  if (isBusy(part)) return false;
  part.replaceWith(document.adoptNode(fresh));
  fresh.dispatchEvent(new Event("renewed", { bubbles: true }));
  return true;
}

function grow(list, page) {
  const gone = [...list.children].filter((each) => !page.getElementById(each.id));
  for (const each of gone) if (!isBusy(each)) each.remove();
  const came = [...(page.getElementById(list.id)?.children ?? [])].filter((each) => !document.getElementById(each.id));
  list.append(...came.map((each) => document.adoptNode(each)));
  return !gone.some((each) => each.isConnected);
}

function inSight() {
  return new Promise((resolve) => {
    if (!document.hidden) resolve();
    else document.addEventListener("visibilitychange", resolve, { once: true });
  });
}

async function follow() {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
    await inSight();
    try {
      if (!(await refresh())) return;
    } catch {
      // The gateway is away; the next try may find it.
    }
  }
}

if (document.querySelector("[data-live]")) follow();
