# The functions of nixpkgs' lib that the flake uses, each by its documentation.
let
  inherit (builtins)
    attrNames
    concatStringsSep
    elem
    filter
    foldl'
    head
    isAttrs
    isString
    length
    listToAttrs
    map
    match
    replaceStrings
    stringLength
    substring
    tail
    ;
  types = import ./types.nix lib;
  modules = import ./modules.nix lib;
  lib = rec {
    inherit types;
    inherit (modules) evalModules settle unwrap;

    genAttrs =
      names: f:
      listToAttrs (
        map (name: {
          inherit name;
          value = f name;
        }) names
      );
    inherit (builtins) filter mapAttrs;
    mapAttrsToList = f: set: map (name: f name set.${name}) (attrNames set);
    concatMap = builtins.concatMap;
    concatMapStringsSep =
      sep: f: list:
      concatStringsSep sep (map f list);
    all = builtins.all;
    any = builtins.any;
    optional = when: one: if when then [ one ] else [ ];
    optionals = when: list: if when then list else [ ];
    optionalString = when: text: if when then text else "";
    optionalAttrs = when: set: if when then set else { };
    flatten = x: if builtins.isList x then builtins.concatMap flatten x else [ x ];

    hasPrefix = prefix: text: substring 0 (stringLength prefix) text == prefix;
    hasSuffix =
      suffix: text:
      stringLength text >= stringLength suffix
      && substring (stringLength text - stringLength suffix) (-1) text == suffix;
    splitString =
      sep: text: filter isString (builtins.split (replaceStrings [ "." "|" ] [ "\\." "\\|" ] sep) text);
    toInt =
      text: if match "-?[0-9]+" text == null then throw "toInt: ${text}" else builtins.fromJSON text;
    mkOption = option: option // { _type = "option"; };
    mkEnableOption =
      name:
      mkOption {
        type = types.bool;
        default = false;
        description = "Whether to enable ${name}.";
      };
    literalExpression = text: {
      _type = "literalExpression";
      inherit text;
    };
    mkIf = condition: content: {
      _type = "if";
      inherit condition content;
    };
    mkMerge = contents: {
      _type = "merge";
      inherit contents;
    };
    mkOverride = priority: content: {
      _type = "override";
      inherit priority content;
    };
    mkOptionDefault = mkOverride 1500;
    mkDefault = mkOverride 1000;
    mkForce = mkOverride 50;

    fetchers.proxyImpureEnvVars = [
      "http_proxy"
      "https_proxy"
      "no_proxy"
    ];
    licenses.asl20 = {
      spdxId = "Apache-2.0";
    };
    isDerivation = x: isAttrs x && x.type or null == "derivation";
  };
in
lib
