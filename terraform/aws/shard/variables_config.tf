# Fields of the shard's config, which docs/configuration.md describes under the same names.

variable "subnet_pools" {
  type        = map(list(string))
  description = <<-EOT
    IDs of the subnets of instances, by pool, in the order in which they are tried. All must be in the zone of `subnet` and have the tag
    `nstance:cluster-id` with the cluster's ID, as those of the module `network` do: servers may not launch into others.
  EOT
  nullable    = false

  validation {
    condition     = length(var.subnet_pools) > 0 && alltrue([for subnets in var.subnet_pools : length(subnets) > 0])
    error_message = "subnet_pools: want at least one pool, and in each at least one subnet"
  }
  validation {
    condition = alltrue([for n in keys(var.subnet_pools) : can(regex("^[a-z0-9]+(-[a-z0-9]+)*$", n)) && length(n) <= 32])
    error_message = join("", [
      "subnet_pools: want names of lowercase letters, digits and single inner hyphens, at most 32: ", join(", ", keys(var.subnet_pools)),
    ])
  }
  validation {
    condition     = length(distinct(flatten(values(var.subnet_pools)))) == length(flatten(values(var.subnet_pools)))
    error_message = "subnet_pools: want each subnet once, in one of the pools: ${join(", ", flatten(values(var.subnet_pools)))}"
  }
}

variable "subnet_pool_tenants" {
  type        = map(set(string))
  description = "Tenants that may use a subnet pool, by its name; `[\"*\"]` for all. A pool without an entry is only for `default`."
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for pool in keys(var.subnet_pool_tenants) : contains(keys(var.subnet_pools), pool)])
    error_message = "subnet_pool_tenants: want names of subnet_pools"
  }
}

variable "dynamic_subnet_pools" {
  type        = list(string)
  description = "Subnet pools that dynamic groups, those created through the API, may use. Empty means all."
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for pool in var.dynamic_subnet_pools : contains(keys(var.subnet_pools), pool)])
    error_message = "dynamic_subnet_pools: want names of subnet_pools"
  }
}

variable "tenants" {
  type        = set(string)
  description = "Tenants in addition to `default`. Their quotas can be set in `config_json`."
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for t in var.tenants : can(regex("^[a-z0-9]+(-[a-z0-9]+)*$", t)) && length(t) <= 32 && t != "default"])
    error_message = "tenants: want lowercase letters, digits and single inner hyphens, at most 32, and not default, which is always there"
  }
}

variable "images" {
  type = map(object({
    owners   = optional(list(string), [])
    filters  = optional(list(object({ name = string, values = list(string) })), [])
    sort     = optional(string)
    order    = optional(string)
    fallback = optional(string)
    tenants  = optional(set(string))
  }))
  description = <<-EOT
    Machine images, found by their properties. `al2023_amd64` and `al2023_arm64` are predefined: the newest Amazon Linux 2023 with the
    kernel that was its default at the last apply. `tenants` are the tenants that may use the image, `["*"]` for all; unset means only
    `default`.
  EOT
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for i in var.images : length(i.filters) > 0 || i.fallback != null])
    error_message = "images: want filters or a fallback"
  }
  validation {
    condition = alltrue([
      for n in keys(var.images) : can(regex("^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", n)) && length(n) <= 64
    ])
    error_message = join("", [
      "images: want names of letters, digits and inner dots, hyphens and underscores, at most 64: ",
      join(", ", keys(var.images)),
    ])
  }
}

variable "certificates" {
  type = map(object({
    kind         = string
    cn           = string
    organization = optional(list(string))
    dns          = optional(list(string))
    ip           = optional(list(string))
    uri          = optional(list(string))
    ttl          = optional(number)
    tenants      = optional(set(string))
  }))
  description = <<-EOT
    Templates of certificates that instances can receive as files, by name. `tenants` are the tenants that may use one, `["*"]` for all;
    unset means only `default`.
  EOT
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for c in var.certificates : contains(["server", "client", "peer"], c.kind)])
    error_message = "certificates: kind: want server, client or peer"
  }
  validation {
    condition = alltrue([
      for n in keys(var.certificates) : can(regex("^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", n)) && length(n) <= 64
    ])
    error_message = join("", [
      "certificates: want names of letters, digits and inner dots, hyphens and underscores, at most 64: ",
      join(", ", keys(var.certificates)),
    ])
  }
}

variable "vars" {
  type        = map(string)
  description = "Vars of all templates, for the groups of `vars_tenants`."
  default     = {}
  nullable    = false
}

variable "vars_tenants" {
  type        = set(string)
  description = "Tenants whose groups get the `vars`, `[\"*\"]` for all. Required if both `tenants` and `vars` are set."
  default     = null

  validation {
    condition     = var.vars_tenants != null || length(var.vars) == 0 || length(var.tenants) == 0
    error_message = "vars_tenants: want the tenants whose groups have the vars, such as [\"default\"], or [\"*\"] for all"
  }
}

variable "settings" {
  type = object({
    request_timeout        = optional(string)
    shutdown_timeout       = optional(string)
    default_drain_timeout  = optional(string)
    image_refresh_interval = optional(string)
    create_rate = optional(object({
      per_second  = optional(number)
      burst       = optional(number)
      concurrency = optional(number)
    }))
    create_backoff = optional(object({ settle = optional(string), max = optional(string) }))
    leader_election = optional(object({
      renew_interval = optional(string)
      lease_duration = optional(string)
      fence_window   = optional(string)
      give_up        = optional(string)
    }))
    health = optional(object({
      report_interval = optional(string)
      missed_reports  = optional(number)
      shutdown_grace  = optional(string)
    }))
    garbage_collection = optional(object({
      interval                   = optional(string)
      registration_timeout       = optional(string)
      deleted_record_retention   = optional(string)
      request_retention          = optional(string)
      certificate_log_retention  = optional(string)
      removed_operator_retention = optional(string)
    }))
    expiry    = optional(object({ eligible_age = optional(string), forced_age = optional(string), ondemand_age = optional(string) }))
    rotation  = optional(object({ max_surge = optional(string) }))
    on_demand = optional(object({ create_timeout = optional(string) }))
  })
  description = "Fields of `server` in the config. Unset fields have the server's defaults."
  default     = {}
  nullable    = false

  validation {
    condition = alltrue([
      for d in concat(
        [var.settings.request_timeout, var.settings.shutdown_timeout],
        [var.settings.default_drain_timeout, var.settings.image_refresh_interval],
        values(coalesce(var.settings.create_backoff, {})),
        values(coalesce(var.settings.leader_election, {})),
        values(coalesce(var.settings.garbage_collection, {})),
        values(coalesce(var.settings.expiry, {})),
        values(coalesce(var.settings.on_demand, {})),
        [try(var.settings.health.report_interval, null), try(var.settings.health.shutdown_grace, null)],
      ) : d == null || d == "" || can(regex("^[0-9]+d$|^([0-9]+d)?([0-9]+(\\.[0-9]+)?(h|m|s|ms|us|ns))+$", d))
    ])
    error_message = "settings: want durations such as 500ms, 90s, 1h30m or 30d"
  }
}

variable "config_json" {
  type        = string
  description = <<-EOT
    A JSON object with config fields that have no input here. Its fields replace those of the config; in `cluster` and `server`, each
    of their fields separately.
  EOT
  default     = "{}"
  nullable    = false

  validation {
    condition     = can(keys(jsondecode(var.config_json)))
    error_message = "config_json: want a JSON object, such as {\"defaults\": {\"vars\": {\"log_level\": \"info\"}}}"
  }
}
