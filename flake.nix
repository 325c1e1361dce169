{
  description = "Nstance: groups of machines kept at their size, in any cloud";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-26.05";

  outputs =
    { self, nixpkgs }:
    let
      inherit (nixpkgs) lib;
      systems = [
        "x86_64-linux"
        "aarch64-linux"
        "aarch64-darwin"
      ];
      # What the programs answer to --version. A flake is not told of tags.
      version = self.shortRev or "dev";
      forEach = f: lib.genAttrs systems (system: f nixpkgs.legacyPackages.${system});
      packagesOf = pkgs: import ./nix/packages.nix { inherit pkgs version; };
      # With a name, so that a module which is imported twice is one module.
      moduleOf = path: {
        key = toString path;
        _file = toString path;
        imports = [ (import path packagesOf) ];
      };
    in
    {
      packages = forEach packagesOf;

      overlays.default = final: prev: {
        inherit (packagesOf final)
          nstance-server
          nstance-agent
          nstance-operator
          nstance-admin
          nstance-asg
          ;
      };

      apps = forEach (
        pkgs:
        import ./nix/apps.nix {
          inherit pkgs;
          packages = packagesOf pkgs;
        }
      );

      devShells = forEach (pkgs: {
        default = import ./nix/shell.nix { inherit pkgs; };
      });

      formatter = forEach (pkgs: pkgs.nixfmt-tree);

      # A module brings the packages of this flake along, for the machine's own system.
      nixosModules = {
        nstance-server = moduleOf ./nix/modules/server.nix;
        nstance-agent = moduleOf ./nix/modules/agent.nix;
        default = {
          imports = [
            self.nixosModules.nstance-server
            self.nixosModules.nstance-agent
          ];
        };
      };

      # Two machines as examples: docs/nix.md.
      nixosConfigurations = import ./nix/example.nix { inherit self nixpkgs; };

      checks = forEach (
        pkgs:
        import ./nix/checks.nix {
          inherit pkgs self;
          packages = packagesOf pkgs;
        }
      );
    };
}
