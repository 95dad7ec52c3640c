"use strict";
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const update = () => button.setAttribute("aria-pressed", String(dark()));
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    update();
  });
  system.addEventListener("change", update);
  update();

  // On a phone the contents would fill the screen.
  if (window.matchMedia("(max-width: 62rem)").matches) document.querySelector("nav details").open = false;

  const key = (row, column) => {
    const cell = row.cells[column].cloneNode(true);
    cell.querySelectorAll("small").forEach((part) => part.remove());
    return cell.textContent.trim();
  };
  const compare = (a, b) => {
    const [x, y] = [parseFloat(a), parseFloat(b)];
    if (!Number.isNaN(x) && !Number.isNaN(y) && x !== y) return x - y;
    return a.localeCompare(b, "en", { numeric: true });
  };
  document.querySelectorAll("th[aria-sort] button").forEach((head) => {
    head.addEventListener("click", () => {
      const cell = head.parentElement;
      const ascending = cell.getAttribute("aria-sort") !== "ascending";
      for (const other of cell.parentElement.cells) other.setAttribute("aria-sort", "none");
      cell.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const body = cell.closest("table").tBodies[0];
      const empty = (text) => (text === "" || text === "-" ? 1 : 0); // missing values stay last
      const rows = [...body.rows].map((row) => [key(row, cell.cellIndex), row]);
      rows.sort(([a], [b]) => empty(a) - empty(b) || (ascending ? 1 : -1) * compare(a, b));
      rows.forEach(([, row]) => body.append(row));
    });
  });
})();
