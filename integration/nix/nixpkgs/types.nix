# Option types: what a value has to be, and what several definitions make together. `merge` gets
# the path of the option and its definitions, each a value and the file it is from.
lib:
let
  show = value: if builtins.isAttrs value then "a set" else builtins.toJSON value;
  refuse =
    path: want: value:
    throw "A definition for option `${path}' is not of type `${want}'. Definition value: ${show value}";

  # One value: definitions may only repeat it.
  simple = description: check: {
    inherit description check;
    merge =
      path: definitions:
      let
        first = builtins.head definitions;
      in
      builtins.foldl' (
        value: other:
        if !(check other) then
          refuse path description other
        else if value == other then
          value
        else
          throw "The option `${path}' has conflicting definition values: ${show value} and ${show other}"
      ) (if check first then first else refuse path description first) definitions;
  };

  collection = description: check: join: {
    inherit description check;
    merge =
      path: definitions:
      join path (map (d: if check d then d else refuse path description d) definitions);
  };

  byName =
    path: merge: sets:
    builtins.mapAttrs (name: definitions: merge "${path}.${name}" definitions) (
      builtins.zipAttrsWith (name: values: values) sets
    );
in
rec {
  str = simple "string" builtins.isString;
  bool = simple "boolean" builtins.isBool;
  int = simple "signed integer" builtins.isInt;
  path = simple "path" (x: builtins.isPath x || builtins.isString x && lib.hasPrefix "/" x);
  package = simple "package" lib.isDerivation;
  strMatching =
    pattern:
    simple "string matching the pattern ${pattern}" (
      x: builtins.isString x && builtins.match pattern x != null
    );
  enum = values: simple "one of ${builtins.toJSON values}" (x: builtins.elem x values);

  # What merges by itself: sets by name, lists one behind the other.
  anything = {
    description = "anything";
    check = x: true;
    merge =
      path: definitions:
      if builtins.all (d: builtins.isAttrs d && !lib.isDerivation d) definitions then
        byName path (path: values: anything.merge path (lib.settle path values)) (
          map lib.unwrap definitions
        )
      else if builtins.all builtins.isList definitions then
        builtins.concatLists definitions
      else
        (simple "anything" (x: true)).merge path definitions;
  };

  nullOr = type: {
    description = "null or ${type.description}";
    check = x: x == null || type.check x;
    merge =
      path: definitions:
      if builtins.all (d: d == null) definitions then
        null
      else if builtins.any (d: d == null) definitions then
        throw "The option `${path}' is null and not null at once"
      else
        (type // { description = "null or ${type.description}"; }).merge path definitions;
  };
  listOf =
    type:
    collection "list of ${type.description}" builtins.isList (
      path: lists: map (one: type.merge "${path}.[]" [ one ]) (builtins.concatLists lists)
    );
  attrsOf =
    type:
    collection "attribute set of ${type.description}" builtins.isAttrs (
      path: sets:
      byName path (path: values: type.merge path (lib.settle path values)) (map lib.unwrap sets)
    );
  submodule = module: {
    description = "submodule";
    check = builtins.isAttrs;
    merge =
      path: definitions:
      (lib.evalModules {
        modules = [ module ] ++ definitions;
        prefix = path;
      }).config;
  };
}
