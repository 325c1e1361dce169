# What `nix flake check` builds.
{
  pkgs,
  self,
  packages,
}:
let
  inherit (pkgs) lib;
  inherit (pkgs.stdenv.hostPlatform) system;
  pin = builtins.fromJSON (builtins.readFile ./pin.json);
  cases = import ./tests/options.nix;
  # What buildGoModule builds with; go_1_26 is what the shell has.
  go = (packages.nstance-server.go or pkgs.go_1_26).version;

  # accepted reports whether a machine can have a module. It asks for what our modules make of
  # it and not for the whole machine, which would take minutes.
  accepted =
    module:
    let
      machine =
        (self.inputs.nixpkgs.lib.nixosSystem {
          inherit system;
          modules = [
            self.nixosModules.default
            module
            {
              boot.isContainer = true;
              system.stateVersion = "26.05";
            }
          ];
        }).config;
      failed = lib.filter (
        a: !a.assertion && lib.hasPrefix "services.nstance-" a.message
      ) machine.assertions;
      made = [
        (map (unit: (machine.systemd.units.${unit} or { text = ""; }).text) [
          "nstance-server.service"
          "nstance-agent.service"
        ])
        machine.networking.firewall.allowedTCPPorts
      ];
      tried = builtins.tryEval (builtins.deepSeq made (failed == [ ]));
    in
    tried.success && tried.value;

  wrong =
    lib.filter (name: !accepted cases.good.${name}) (builtins.attrNames cases.good)
    ++ lib.filter (name: accepted cases.bad.${name}.module) (builtins.attrNames cases.bad);

  # verdict is a check that needs nothing but an evaluation.
  verdict =
    name: problem:
    pkgs.runCommand "nstance-${name}" { inherit problem; } ''
      [ -z "$problem" ] || { echo "$problem" >&2; exit 1; }
      touch $out
    '';
in
{
  inherit (packages)
    nstance-server
    nstance-agent
    nstance-operator
    nstance-admin
    nstance-asg
    dev
    dev-k8s
    ;

  # nix/pin.json says of the Go of the pin what `make verify` has to know without Nix.
  pin = verdict "pin" (
    lib.optionalString (go != pin.go) "nix/pin.json says Go ${pin.go}, and nixpkgs builds with ${go}"
  );
}
// lib.optionalAttrs pkgs.stdenv.hostPlatform.isLinux {
  options = verdict "options" (
    lib.optionalString (wrong != [ ]) "accepted or refused, and should not have been: ${toString wrong}"
  );
  shard = import ./tests/shard.nix { inherit pkgs self; };
}
