# What the shard is to run: docs/configuration.md describes each field under the same name.

variable "templates" {
  type = map(object({
    kind          = string
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
  }))
  description = <<-EOT
    What instances are made from. The image is `ami_id`, or `image`, a name in `images`; with neither Amazon Linux 2023. The volume is
    encrypted. `args_json` has fields of RunInstances as a JSON object, which go before what the module sets; `null` there takes one
    away. `userdata` takes the place of that which installs nstance-agent. A file of kind `json` has `content_json`.
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
    condition = alltrue([
      for t in var.templates : t.userdata != null || var.agent.image != null || contains(keys(var.agent.packages), t.arch)
    ])
    error_message = "templates: want agent.packages for their arch, agent.image, or userdata: nothing would install nstance-agent"
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
  })))
  description = "The groups by tenant and name: `{ default = { web = { template = \"web\", size = 3 } } }`. `args_json` as in `templates`."
  default     = {}
  nullable    = false

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
      for groups in var.groups : [for g in groups : g.args_json == null || can(keys(jsondecode(g.args_json)))]
    ]))
    error_message = "groups: args_json: want a JSON object, such as {\"KeyName\": \"ops\"}"
  }
}
