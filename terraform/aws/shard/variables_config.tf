# What becomes the shard's config: docs/configuration.md describes each field under the same name.

variable "subnet_pools" {
  type        = map(list(string))
  description = "Subnets of instances by pool, in the order in which they are tried. All are in the zone of `subnet`."
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

variable "dynamic_subnet_pools" {
  type        = list(string)
  description = "The pools that groups made through the API may use. Empty: all."
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for pool in var.dynamic_subnet_pools : contains(keys(var.subnet_pools), pool)])
    error_message = "dynamic_subnet_pools: want names of subnet_pools"
  }
}

variable "tenants" {
  type        = set(string)
  description = "Tenants beside `default`."
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
  }))
  description = <<-EOT
    Machine images, found by their properties. `al2023_amd64` and `al2023_arm64` are there unless defined otherwise: the newest with the
    kernel that was Amazon's default at the apply.
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
  }))
  description = "Certificates that files of instances can be."
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
  description = "Vars of all templates."
  default     = {}
  nullable    = false
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
      interval                 = optional(string)
      registration_timeout     = optional(string)
      deleted_record_retention = optional(string)
      request_retention        = optional(string)
    }))
    expiry    = optional(object({ eligible_age = optional(string), forced_age = optional(string), ondemand_age = optional(string) }))
    rotation  = optional(object({ max_surge = optional(string) }))
    on_demand = optional(object({ create_timeout = optional(string) }))
  })
  description = "Fields of the config's `server`. Unset ones have the server's own defaults."
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
    A JSON object that is laid over the config, for what has no input here: its fields take the place of the config's, and those of
    `cluster` and `server` the place of theirs.
  EOT
  default     = "{}"
  nullable    = false

  validation {
    condition     = can(keys(jsondecode(var.config_json)))
    error_message = "config_json: want a JSON object, such as {\"defaults\": {\"vars\": {\"log_level\": \"info\"}}}"
  }
}
