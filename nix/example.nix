# The two machines of the example, each as a system that `nixos-container` could run.
{ self, nixpkgs }:
let
  system =
    module:
    nixpkgs.lib.nixosSystem {
      system = "x86_64-linux";
      modules = [
        self.nixosModules.default
        module
        {
          boot.isContainer = true;
          system.stateVersion = "26.05";
        }
      ];
    };
in
{
  server = system ./example/server.nix;
  machine = system ./example/machine.nix;
}
