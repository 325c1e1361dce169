# The module system: options declared and defined in many places become one configuration.
lib:
let
  isOption = x: builtins.isAttrs x && x._type or null == "option";
  is = kind: x: builtins.isAttrs x && x._type or null == kind;

  # Definitions of one option: what conditions leave of them, and of that what counts most.
  expand =
    priority: value:
    if is "if" value then
      (if value.condition then expand priority value.content else [ ])
    else if is "merge" value then
      builtins.concatMap (expand priority) value.contents
    else if is "override" value then
      expand value.priority value.content
    else
      [ { inherit priority value; } ];
  settle =
    path: definitions:
    let
      all = builtins.concatMap (expand 100) definitions;
      most = builtins.foldl' (least: d: if d.priority < least then d.priority else least) 9999 all;
    in
    map (d: d.value) (builtins.filter (d: d.priority == most) all);

  # A set with a condition around it is a set of values with that condition around each.
  unwrap =
    set:
    if is "if" set then
      builtins.mapAttrs (name: value: lib.mkIf set.condition value) (unwrap set.content)
    else if is "override" set then
      builtins.mapAttrs (name: value: lib.mkOverride set.priority value) (unwrap set.content)
    else if is "merge" set then
      builtins.zipAttrsWith (name: lib.mkMerge) (map unwrap set.contents)
    else
      set;

  # Every module that is named, with those that it imports. What a module with a key imports has
  # one too, for a key counts once.
  collect =
    args: inherited: module:
    let
      loaded = if builtins.isPath module || builtins.isString module then import module else module;
      applied = if builtins.isFunction loaded then loaded args else loaded;
      long = applied ? options || applied ? config;
      plain = removeAttrs applied [
        "imports"
        "key"
        "_file"
      ];
      key = applied.key or inherited;
      imports = applied.imports or [ ];
      imported = builtins.genList (
        n: collect args (if key == null then null else "${key}:${toString n}") (builtins.elemAt imports n)
      ) (builtins.length imports);
    in
    builtins.concatLists imported
    ++ [
      {
        inherit key;
        options = if long then applied.options or { } else { };
        config = if long then applied.config or { } else plain;
      }
    ];

  once = builtins.foldl' (
    all: module:
    if module.key != null && builtins.any (other: other.key == module.key) all then
      all
    else
      all ++ [ module ]
  ) [ ];

  mergeOptions =
    path: sets:
    builtins.zipAttrsWith (
      name: declared:
      if builtins.all isOption declared then
        (
          if builtins.length declared == 1 then
            builtins.head declared
          else
            throw "The option `${join path name}' is already declared"
        )
      else
        mergeOptions (join path name) declared
    ) sets;

  join = path: name: if path == "" then name else "${path}.${name}";

  evaluate =
    path: options: configs:
    builtins.mapAttrs (
      name: option:
      let
        here = join path name;
        given = builtins.concatMap (c: lib.optional (c ? ${name}) c.${name}) configs;
        settled = settle here (
          given ++ lib.optional (option ? default) (lib.mkOptionDefault option.default)
        );
      in
      if !(isOption option) then
        evaluate here option (map unwrap given)
      else if settled == [ ] then
        throw "The option `${here}' was accessed but has no value defined. Try setting the option."
      else
        (option.apply or (x: x)) (option.type.merge here settled)
    ) options;

  unknown =
    path: options: configs:
    builtins.concatMap (
      c:
      builtins.concatMap (
        name:
        if !(options ? ${name}) then
          [ (join path name) ]
        else if isOption options.${name} then
          [ ]
        else
          unknown (join path name) options.${name} [ (unwrap c.${name}) ]
      ) (builtins.attrNames c)
    ) configs;
in
{
  inherit settle unwrap;

  evalModules =
    {
      modules,
      specialArgs ? { },
      prefix ? "",
    }:
    let
      all = once (
        builtins.concatMap (collect ({ inherit lib config options; } // specialArgs) null) modules
      );
      options = mergeOptions prefix (map (m: m.options) all);
      configs = map (m: unwrap m.config) all;
      strangers = unknown prefix options configs;
      config =
        if strangers == [ ] then
          evaluate prefix options configs
        else
          throw "The option `${builtins.head strangers}' does not exist.";
    in
    {
      inherit options config;
    };
}
