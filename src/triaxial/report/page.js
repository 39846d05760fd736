// The browsers of cases: search, and no more than a screenful until more is asked for.
for (const browser of document.querySelectorAll(".browser")) {
  const cases = [...browser.querySelectorAll(".case")];
  const texts = cases.map((one) => one.textContent.toLowerCase());
  const input = browser.querySelector("input");
  const status = browser.querySelector("[role=status]");
  const more = document.createElement("button");
  more.type = "button";
  more.textContent = "Show more";
  browser.append(more);
  const step = 20;
  let most = step;
  const show = () => {
    const wanted = input.value.toLowerCase();
    let found = 0;
    cases.forEach((one, n) => {
      const fits = texts[n].includes(wanted);
      one.hidden = !fits || found >= most;
      found += fits;
    });
    status.textContent = `${Math.min(found, most)} of ${found} shown`;
    more.hidden = found <= most;
  };
  input.addEventListener("input", () => {
    most = step;
    show();
  });
  more.addEventListener("click", () => {
    most += step;
    show();
  });
  show();
}
