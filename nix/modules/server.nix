# The NixOS module of nstance-server: docs/nix.md.
packagesOf:
{
  config,
  lib,
  pkgs,
  utils,
  ...
}:
let
  cfg = config.services.nstance-server;
  option = "services.nstance-server";

  # A shard's config as a file, checked by the server itself when the machine is built, unless
  # what builds it can't run the machine's programs.
  configFile =
    let
      text = pkgs.writeText "${cfg.shard}.jsonc" (builtins.toJSON cfg.config);
      canExecute = pkgs.stdenv.buildPlatform.canExecute or (platform: true);
    in
    pkgs.runCommand "nstance-${cfg.shard}.jsonc" { } ''
      ${lib.optionalString (canExecute pkgs.stdenv.hostPlatform) "${cfg.package}/bin/nstance-server --validate ${text}"}
      cp ${text} $out
    '';

  flags = lib.concatMap (
    name: lib.optionals (cfg.settings.${name} != null) [ "--${name}=${toString cfg.settings.${name}}" ]
  ) (builtins.attrNames cfg.settings);

  misnamed = lib.filter (name: builtins.match "[A-Za-z0-9_.-]+" name == null) (
    builtins.attrNames cfg.credentials
  );

  # A bucket that is a directory may be where the server could not write.
  elsewhere = lib.optional (
    cfg.storage.provider == "dir" && !(lib.hasPrefix "/var/lib/nstance-server/" cfg.storage.bucket)
  ) cfg.storage.bucket;

  # The addresses that others reach a server at, with their default ports. The health endpoint
  # is for whatever probes it, so it is not among them.
  ports = {
    election-addr = 8991;
    registration-addr = 8992;
    operator-addr = 8993;
    agent-addr = 8994;
  };
  portOf =
    name: default:
    let
      # A flag goes before the config.
      bound = (cfg.config.server.bind or { }).${builtins.replaceStrings [ "-" ] [ "_" ] name} or null;
      addr = if cfg.settings.${name} != null then cfg.settings.${name} else bound;
      port = builtins.match ".*:([0-9]+)" addr;
    in
    if addr == null then
      default
    else if port == null then
      throw "${option}.settings.${name}: ${addr} has no port: want one behind a colon"
    else
      lib.toInt (builtins.head port);
in
{
  options.services.nstance-server = import ./server-options.nix {
    inherit lib;
    packages = packagesOf pkgs;
  };

  config = lib.mkIf cfg.enable {
    assertions = [
      {
        assertion = cfg.storage.provider == "dir" || !(lib.hasPrefix "/" cfg.storage.bucket);
        message = "${option}.storage.bucket: ${cfg.storage.bucket} is a directory: want a bucket's name, or storage.provider = \"dir\"";
      }
      {
        assertion = cfg.storage.provider == "s3" || lib.hasPrefix "/" cfg.storage.bucket;
        message = "${option}.storage.bucket: ${cfg.storage.bucket} is no absolute path: want one with storage.provider = \"dir\"";
      }
      {
        assertion =
          cfg.config == null || (cfg.config.server.provider.kind or "") != "process" || cfg.keepProcesses;
        message = "${option}.keepProcesses: want true with the process provider: a restart would else end all instances";
      }
      {
        assertion = misnamed == [ ];
        message = "${option}.credentials: ${toString misnamed}: want names of letters, digits, dots, dashes and underscores";
      }
    ];

    users.users.nstance-server = {
      isSystemUser = true;
      group = "nstance-server";
      description = "Nstance server";
    };
    users.groups.nstance-server = { };

    environment.systemPackages = [ cfg.adminPackage ];

    systemd.tmpfiles.rules = map (path: "d ${path} 0700 nstance-server nstance-server") elsewhere;

    networking.firewall.allowedTCPPorts = lib.mkIf cfg.openFirewall (lib.mapAttrsToList portOf ports);

    systemd.services.nstance-server = {
      description = "Nstance server: keeps the machines of one shard";
      documentation = [ "https://github.com/nstance/nstance/blob/main/docs/server.md" ];
      wants = [ "network-online.target" ];
      after = [ "network-online.target" ];
      wantedBy = [ "multi-user.target" ];
      # What is wrong with an address or the storage may pass, however long that takes.
      startLimitIntervalSec = 0;
      inherit (cfg) environment;
      serviceConfig = import ./hardening.nix // {
        ExecStart = utils.escapeSystemdExecArgs (
          [
            "${cfg.package}/bin/nstance-server"
            "--shard=${cfg.shard}"
            "--storage-provider=${cfg.storage.provider}"
            "--storage-bucket=${cfg.storage.bucket}"
            "--cache-dir=/var/cache/nstance-server"
          ]
          ++ flags
        );
        ExecStartPre = lib.optional (cfg.config != null) (
          utils.escapeSystemdExecArgs [
            "${cfg.adminPackage}/bin/nstance-admin"
            "cluster"
            "config"
            "put"
            "--storage-provider=${cfg.storage.provider}"
            "--storage-bucket=${cfg.storage.bucket}"
            cfg.shard
            "${configFile}"
          ]
        );
        EnvironmentFile = cfg.environmentFiles;
        LoadCredential = lib.mapAttrsToList (name: path: "${name}:${path}") cfg.credentials;
        Restart = "always";
        RestartSec = 1;
        # As long as server.shutdown_timeout may be, and some more.
        TimeoutStopSec = 60;
        KillMode = if cfg.keepProcesses then "process" else "control-group";
        LimitNOFILE = 65536;

        User = "nstance-server";
        Group = "nstance-server";
        SupplementaryGroups = cfg.extraGroups;
        ReadWritePaths = elsewhere;
        StateDirectory = "nstance-server";
        StateDirectoryMode = "0700";
        CacheDirectory = "nstance-server";
        CacheDirectoryMode = "0700";
        UMask = "0077";
      };
    };
  };
}
