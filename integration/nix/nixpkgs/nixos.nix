# What of NixOS the modules set, and units as it writes them.
{ lib, packagesFor }:
{ system, modules }:
let
  inherit (lib) mkOption types;
  open =
    default:
    mkOption {
      type = types.anything;
      inherit default;
    };
  list =
    type:
    mkOption {
      type = types.listOf type;
      default = [ ];
    };
  text = mkOption {
    type = types.str;
    default = "";
  };

  service = {
    options = {
      description = text;
      documentation = list types.str;
      wants = list types.str;
      after = list types.str;
      wantedBy = list types.str;
      startLimitIntervalSec = mkOption {
        type = types.nullOr types.int;
        default = null;
      };
      environment = mkOption {
        type = types.attrsOf types.str;
        default = { };
      };
      serviceConfig = open { };
    };
  };

  word =
    value:
    if value == true then
      "true"
    else if value == false then
      "false"
    else
      toString value;
  line =
    name: value: if value == null then [ ] else map (one: "${name}=${word one}") (lib.flatten value);
  section =
    name: set:
    lib.optional (set != { })
      "[${name}]\n${lib.concatMapStringsSep "\n" (x: x) (lib.flatten (lib.mapAttrsToList line set))}\n";
  words = list: if list == [ ] then null else builtins.concatStringsSep " " list;
  unit =
    s:
    builtins.concatStringsSep "\n" (
      section "Unit" {
        Description = s.description;
        Documentation = words s.documentation;
        Wants = words s.wants;
        After = words s.after;
        StartLimitIntervalSec = s.startLimitIntervalSec;
      }
      ++ section "Service" (
        {
          Environment = lib.mapAttrsToList (name: value: builtins.toJSON "${name}=${value}") s.environment;
        }
        // s.serviceConfig
      )
      ++ section "Install" (lib.optionalAttrs (s.wantedBy != [ ]) { WantedBy = words s.wantedBy; })
    );

  user = {
    options = {
      isSystemUser = mkOption {
        type = types.bool;
        default = false;
      };
      group = text;
      description = text;
    };
  };
  group = {
    options.members = list types.str;
  };

  base =
    { config, ... }:
    {
      options = {
        assertions = open [ ];
        warnings = open [ ];
        boot.isContainer = mkOption {
          type = types.bool;
          default = false;
        };
        environment.systemPackages = list types.package;
        environment.etc = open { };
        networking.hostName = text;
        networking.firewall.allowedTCPPorts = list types.int;
        networking.primaryIPAddress = mkOption {
          type = types.str;
          default = "192.168.1.1";
        };
        system.stateVersion = text;
        system.build.toplevel = open null;
        systemd.services = mkOption {
          type = types.attrsOf (types.submodule service);
          default = { };
        };
        systemd.units = open { };
        systemd.tmpfiles.rules = list types.str;
        users.users = mkOption {
          type = types.attrsOf (types.submodule user);
          default = { };
        };
        users.groups = mkOption {
          type = types.attrsOf (types.submodule group);
          default = { };
        };
      };
      config = {
        assertions = lib.mapAttrsToList (name: user: {
          assertion = user.isSystemUser && config.users.groups ? ${user.group};
          message = "users.users.${name}: is neither a system's nor a person's, or its group is not there";
        }) config.users.users;
        systemd.units = builtins.listToAttrs (
          lib.mapAttrsToList (name: s: {
            name = "${name}.service";
            value.text = unit s;
          }) config.systemd.services
        );
        system.build.toplevel =
          let
            failed = map (a: a.message) (builtins.filter (a: !a.assertion) config.assertions);
          in
          if failed == [ ] then
            (packagesFor system).writeText "nixos-system" (
              builtins.toJSON [
                config.systemd.units
                config.networking.firewall.allowedTCPPorts
                config.users
                config.systemd.tmpfiles.rules
                config.environment
              ]
            )
          else
            throw "\nFailed assertions:\n${lib.concatMapStringsSep "\n" (m: "- ${m}") failed}";
      };
    };
in
lib.evalModules {
  modules = [ base ] ++ modules;
  specialArgs = {
    pkgs = packagesFor system;
    # As systemd reads the words of a command.
    utils.escapeSystemdExecArgs = lib.concatMapStringsSep " " (
      arg: builtins.replaceStrings [ "%" "$" ] [ "%%" "$$" ] (builtins.toJSON (toString arg))
    );
  };
}
