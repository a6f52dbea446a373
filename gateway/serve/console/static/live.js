// Parts marked `data-live` are taken anew from the page itself every other second, while somebody looks at it.
// The server makes them; here nothing is turned into markup that the page would not hold.
const PAUSE = 2000;

async function refresh() {
  const answer = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store" });
  if (!answer.ok || answer.redirected) return false;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live][id]")) {
    const fresh = page.getElementById(part.id);
    // What somebody works in stays: a focus or a selection would be lost.
    const busy = part.contains(document.activeElement) || selects(part);
    if (fresh && !busy && !part.isEqualNode(fresh)) part.replaceWith(document.adoptNode(fresh));
  }
  return true;
}

function selects(part) {
  const selection = document.getSelection();
  return selection && !selection.isCollapsed && selection.containsNode(part, true);
}

async function follow() {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
    if (document.hidden) continue;
    try {
      if (!(await refresh())) return;
    } catch {
      // The gateway is away; the next try may find it.
    }
  }
}

if (document.querySelector("[data-live]")) follow();
