# What `nix run .#NAME` starts.
{ pkgs, packages }:
let
  inherit (pkgs) lib;
  # stack runs bin/dev from the store, where nothing can be written: all state is under temp in
  # the folder where it is started. Without a command it is `dev run`.
  stack =
    name: description: flags:
    app description (
      pkgs.writeShellScript name ''
        case "''${1:-}" in
        --help | -h) ;;
        "" | -*) set -- run "$@" ;;
        esac
        exec ${packages.dev}/bin/dev --examples ${packages.dev}/share/nstance/examples/dev \
          --repository ${packages.dev}/share/nstance ${flags} "$@"
      ''
    );
  app = description: program: {
    type = "app";
    program = "${program}";
    meta = { inherit description; };
  };

  # The programs of the stack with dev-k8s among them.
  together = pkgs.runCommand "nstance-dev-k8s" { } ''
    mkdir -p $out/bin
    ln -s ${packages.dev}/bin/* ${packages.dev-k8s}/bin/* $out/bin/
  '';
in
{
  dev = stack "nstance-dev" "The development stack" "--bin ${packages.dev}/bin";
  admin = app "Asks and changes what shards hold" "${packages.nstance-admin}/bin/nstance-admin";
}
// lib.optionalAttrs (packages ? plane) {
  dev-k8s =
    stack "nstance-dev-k8s" "The development stack with Kubernetes"
      "--bin ${together}/bin --kubernetes --plane ${packages.plane}";
}
