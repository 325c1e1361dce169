# What the shard runs. docs/configuration.md describes the fields under the same names.

variable "templates" {
  type = map(object({
    kind          = string
    tenants       = optional(set(string))
    arch          = optional(string, "arm64")
    size          = optional(number)
    instance_type = optional(string)
    subnet_pool   = optional(string)
    max_surge     = optional(string)
    ami_id        = optional(string)
    image         = optional(string)
    root_device   = optional(string, "/dev/xvda")
    volume_gb     = optional(number, 8)
    kms_key_arn   = optional(string)
    spot          = optional(bool, false)
    args_json     = optional(string, "{}")
    vars          = optional(map(string))
    userdata      = optional(object({ content = string, encoding = optional(string, "plain") }))
    files = optional(map(object({
      kind         = string
      template     = optional(string)
      key          = optional(object({ source = optional(string, "agent"), name = string, algorithm = optional(string) }))
      source       = optional(string)
      content      = optional(string)
      content_json = optional(string)
      values       = optional(map(string))
    })))
    require_files = optional(bool)
  }))
  description = <<-EOT
    Templates of instances, by name. The machine image is `ami_id`, or the one that `image` names in `images`; without either it is
    Amazon Linux 2023. The root volume is encrypted. `args_json` is a JSON object with fields of RunInstances, which override those that
    the module sets; `null` removes a field. `userdata` replaces the script that installs nstance-agent. Files of kind `json` have
    `content_json`. `tenants` are the tenants that may use the template, `["*"]` for all; unset means only `default`.
  EOT
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for t in var.templates : can(regex("^[a-z]{3}$", t.kind)) && t.kind != "opr"])
    error_message = "templates: kind: want three lowercase letters, and not opr, which operators have"
  }
  validation {
    condition     = alltrue([for t in var.templates : contains(["amd64", "arm64"], t.arch)])
    error_message = "templates: arch: want amd64 or arm64"
  }
  validation {
    condition = alltrue([
      for n in keys(var.templates) : can(regex("^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", n)) && length(n) <= 64
    ])
    error_message = join("", [
      "templates: want names of letters, digits and inner dots, hyphens and underscores, at most 64: ",
      join(", ", keys(var.templates)),
    ])
  }
  validation {
    condition = alltrue([
      for t in var.templates : t.size == null || try(t.size >= 0 && t.size <= 10000 && floor(t.size) == t.size, false)
    ])
    error_message = join("", [
      "templates: size: want a whole number from 0 to 10000, not ",
      join(", ", [for n, t in var.templates : "${t.size} (${n})" if t.size != null]),
    ])
  }
  # AWS names Graviton types with a g after the generation; a1 was the first of them. A template with its own image and userdata
  # does not use its arch.
  validation {
    condition = alltrue([
      for t in var.templates : t.instance_type == null || (t.ami_id != null || t.image != null) && t.userdata != null || try(
        (t.arch == "arm64") == can(regex("^(a1|[a-z]+[0-9]+g[a-z]*(-[a-z0-9]+)?|p[0-9]+e-gb[0-9]+)\\.", t.instance_type)), false
      )
    ])
    error_message = join("", [
      "templates: instance_type: want one of the template's arch. Those with a g after the generation, such as t4g and m7g, are arm64, ",
      "and others amd64: ", join(", ", [for n, t in var.templates : "${t.instance_type} for ${t.arch} (${n})" if t.instance_type != null]),
    ])
  }
  validation {
    condition = alltrue([
      for t in var.templates : t.max_surge == null || can(regex("^([1-9][0-9]{0,3}|10000|([1-9][0-9]?|100)%)$", t.max_surge))
    ])
    error_message = join("", [
      "templates: max_surge: want a count from 1 to 10000, or a share of the size from 1% to 100%, not ",
      join(", ", [for n, t in var.templates : "${t.max_surge} (${n})" if t.max_surge != null]),
    ])
  }
  validation {
    condition     = alltrue([for t in var.templates : t.ami_id == null || t.image == null])
    error_message = "templates: want ami_id or image, not both"
  }
  validation {
    condition = alltrue([
      for t in var.templates : contains(concat(keys(var.images), ["al2023_amd64", "al2023_arm64"]), coalesce(t.image, "al2023_arm64"))
    ])
    error_message = "templates: image: want a name in images (or al2023_amd64, al2023_arm64)"
  }
  validation {
    condition     = alltrue([for t in var.templates : can(keys(jsondecode(t.args_json)))])
    error_message = "templates: args_json: want a JSON object, such as {\"KeyName\": \"ops\"}"
  }
  validation {
    condition     = alltrue([for t in var.templates : try(contains(["plain", "gzip"], t.userdata.encoding), t.userdata == null)])
    error_message = "templates: userdata.encoding: want plain or gzip; the provider adds the encoding that EC2 wants"
  }
  validation {
    condition = alltrue([
      for t in var.templates : t.userdata != null || var.agent_image != null || contains(keys(var.agent_packages), t.arch)
    ])
    error_message = "templates: want agent_packages for their arch, agent_image, or userdata: nothing would install nstance-agent"
  }
  validation {
    condition = alltrue(flatten([
      for t in var.templates : [
        for f in coalesce(t.files, {}) : f.content_json == null || (f.kind == "json" && can(jsondecode(f.content_json)))
      ]
    ]))
    error_message = "templates: files: content_json: want JSON, and kind = \"json\" beside it"
  }
}

variable "groups" {
  type = map(map(object({
    template       = string
    size           = optional(number)
    instance_type  = optional(string)
    subnet_pool    = optional(string)
    max_surge      = optional(string)
    vars           = optional(map(string))
    args_json      = optional(string)
    load_balancers = optional(list(string))
    drain_timeout  = optional(string)
    on_demand = optional(object({
      namespaces        = optional(list(string))
      namespace_labels  = optional(map(string))
      instance_types    = optional(list(string))
      max               = number
      max_per_namespace = optional(number)
    }))
  })))
  description = <<-EOT
    Groups, by tenant and name: `{ default = { web = { template = "web", size = 3 } } }`. `args_json` is as in `templates`.
  EOT
  default     = {}
  nullable    = false

  # config_json may replace the tenants.
  validation {
    condition = alltrue([
      for t in keys(var.groups) : contains(concat(["default"], tolist(var.tenants), try(keys(jsondecode(var.config_json).tenants), [])), t)
    ])
    error_message = "groups: want default or a name in tenants (${join(", ", var.tenants)}) as tenant: ${join(", ", keys(var.groups))}"
  }
  validation {
    condition = alltrue(flatten([
      for groups in var.groups : [for n in keys(groups) : can(regex("^[a-z0-9]+(-[a-z0-9]+)*$", n)) && length(n) <= 32]
    ]))
    error_message = join("", [
      "groups: want names of lowercase letters, digits and single inner hyphens, at most 32: ",
      join(", ", flatten([for groups in var.groups : keys(groups)])),
    ])
  }
  validation {
    condition = alltrue(flatten([
      for groups in var.groups : [
        for g in groups : g.size == null || try(g.size >= 0 && g.size <= 10000 && floor(g.size) == g.size, false)
      ]
    ]))
    error_message = join("", [
      "groups: size: want a whole number from 0 to 10000, not ",
      join(", ", flatten([for groups in var.groups : [for n, g in groups : "${g.size} (${n})" if g.size != null]])),
    ])
  }
  validation {
    condition = alltrue(flatten([
      for groups in var.groups : [
        for g in groups : g.drain_timeout == null || try(
          can(regex("^0$|^[0-9]+d$|^([0-9]+d)?([0-9]+(\\.[0-9]+)?(h|m|s|ms|us|ns))+$", g.drain_timeout)) && sum(concat([0], [
            for part in regexall("([0-9.]+)(ms|us|ns|d|h|m|s)", g.drain_timeout) :
            part[0] * { d = 86400, h = 3600, m = 60, s = 1, ms = 0.001, us = 0.000001, ns = 0.000000001 }[part[1]]
          ])) <= 86400, false
        )
      ]
    ]))
    error_message = join("", [
      "groups: drain_timeout: want a duration from 0s to 24h, such as 90s or 1h30m, not ",
      join(", ", flatten([for groups in var.groups : [for n, g in groups : "${g.drain_timeout} (${n})" if g.drain_timeout != null]])),
    ])
  }
  validation {
    condition     = alltrue(flatten([for groups in var.groups : [for g in groups : contains(keys(var.templates), g.template)]]))
    error_message = "groups: template: want a name in templates"
  }
  validation {
    condition = alltrue(flatten([
      for groups in var.groups : [
        for g in groups : g.instance_type != null || try(var.templates[g.template].instance_type != null, true)
      ]
    ]))
    error_message = "groups: instance_type: required where the template has none"
  }
  validation {
    condition = alltrue(flatten([
      for groups in var.groups : [
        for g in groups : g.instance_type == null || try(
          (var.templates[g.template].ami_id != null || var.templates[g.template].image != null) &&
          var.templates[g.template].userdata != null, false
          ) || try(
          (var.templates[g.template].arch == "arm64") ==
          can(regex("^(a1|[a-z]+[0-9]+g[a-z]*(-[a-z0-9]+)?|p[0-9]+e-gb[0-9]+)\\.", g.instance_type)), true
        )
      ]
    ]))
    error_message = join("", [
      "groups: instance_type: want one of the template's arch. Those with a g after the generation, such as t4g and m7g, are arm64, ",
      "and others amd64: ",
      join(", ", flatten([for groups in var.groups : [for n, g in groups : "${g.instance_type} (${n})" if g.instance_type != null]])),
    ])
  }
  validation {
    condition = alltrue(flatten([
      for groups in var.groups : [
        for g in groups :
        contains(keys(var.subnet_pools), coalesce(g.subnet_pool, try(var.templates[g.template].subnet_pool, null), "(none)"))
      ]
    ]))
    error_message = "groups: subnet_pool: want a name in subnet_pools, here or in the template"
  }
  validation {
    condition = alltrue(flatten([
      for groups in var.groups : [
        for g in groups : [for lb in coalesce(g.load_balancers, []) : contains(keys(var.load_balancers), lb)]
      ]
    ]))
    error_message = "groups: load_balancers: want names in load_balancers"
  }
  validation {
    condition = alltrue(flatten([
      for groups in var.groups : [
        for g in groups : g.max_surge == null || can(regex("^([1-9][0-9]{0,3}|10000|([1-9][0-9]?|100)%)$", g.max_surge))
      ]
    ]))
    error_message = join("", [
      "groups: max_surge: want a count from 1 to 10000, or a share of the size from 1% to 100%, not ",
      join(", ", flatten([for groups in var.groups : [for n, g in groups : "${g.max_surge} (${n})" if g.max_surge != null]])),
    ])
  }
  validation {
    condition = alltrue(flatten([
      for groups in var.groups : [
        for g in groups : length(coalesce(g.load_balancers, [])) == length(distinct(coalesce(g.load_balancers, [])))
      ]
    ]))
    error_message = "groups: load_balancers: want each name once"
  }
  validation {
    condition = alltrue(flatten([
      for groups in var.groups : [for g in groups : g.args_json == null || can(keys(jsondecode(g.args_json)))]
    ]))
    error_message = "groups: args_json: want a JSON object, such as {\"KeyName\": \"ops\"}"
  }
}
