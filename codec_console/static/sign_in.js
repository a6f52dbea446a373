// An address with a key needs no click where scripts run: the form is the same.
document.querySelector("#sign-in")?.requestSubmit();
