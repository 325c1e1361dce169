# The phases of a derivation. What a phase does stands in a variable of its name.
set -euo pipefail
export HOME=$TMPDIR SHELL
runHook() { eval "${!1:-}"; }
if [ -n "${src:-}" ]; then
	cp -r "$src" source
	chmod -R u+w source
	cd source
fi
eval "${postPatch:-}"
eval "${configurePhase:-}"
eval "${preBuild:-}"
eval "${buildPhase:-}"
eval "${installPhase:-}"
eval "${postInstall:-}"
