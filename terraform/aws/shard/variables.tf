variable "cluster" {
  type = object({
    id                 = string
    bucket             = string
    encryption_key_arn = string
  })
  description = "The cluster: what the module `cluster` puts out, as `module.cluster`."
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9]+(-[a-z0-9]+)*$", var.cluster.id)) && length(var.cluster.id) <= 32
    error_message = "cluster.id: want lowercase letters, digits and single inner hyphens, at most 32 characters"
  }
  validation {
    condition     = can(regex("^arn:[a-z-]+:(secretsmanager|ssm):", var.cluster.encryption_key_arn))
    error_message = "cluster.encryption_key_arn: want the ARN of a secret (arn:aws:secretsmanager:...) or of a parameter (arn:aws:ssm:...)"
  }
}

variable "account" {
  type = object({
    server_profile_name = string
    agent_profile_name  = string
  })
  description = "The roles: what the module `account` puts out, as `module.account`."
  nullable    = false

  validation {
    condition = alltrue([
      for name in [var.account.server_profile_name, var.account.agent_profile_name] : can(regex("^[A-Za-z0-9+=,.@_-]{1,128}$", name))
    ])
    error_message = "account: want the names of two instance profiles, not their ARNs"
  }
}

variable "shard" {
  type        = string
  description = "Id of the shard, such as the zone's name. Its config becomes `config/{shard}.jsonc`."
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9]+(-[a-z0-9]+)*$", var.shard)) && length(var.shard) <= 32
    error_message = "shard: want lowercase letters, digits and single inner hyphens, at most 32 characters"
  }
}

variable "subnet" {
  type = object({
    id        = string
    vpc_id    = string
    zone      = string
    cidr      = string
    ipv6_cidr = optional(string)
  })
  description = <<-EOT
    The subnet of the servers and of the leader's address: one of the module `network`'s output `subnets`. Its zone is the shard's.
  EOT
  nullable    = false

  validation {
    condition     = try(!strcontains(var.subnet.cidr, ":") && cidrsubnet(var.subnet.cidr, 0, 0) == var.subnet.cidr, false)
    error_message = "subnet.cidr: want an IPv4 range by its first address, such as 10.0.0.0/24, not ${var.subnet.cidr}"
  }
}

variable "operators" {
  type = object({
    cidrs              = optional(list(string), [])
    security_group_ids = optional(map(string), {})
  })
  description = <<-EOT
    From where operators and `nstance-admin` reach the servers, at the ports for registration and for operators: ranges of addresses,
    and security groups under names of your own.
  EOT
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for c in var.operators.cidrs : can(cidrhost(c, 0))])
    error_message = "operators.cidrs: want ranges of addresses, such as 10.0.0.0/8"
  }
}

variable "tags" {
  type        = map(string)
  description = "Tags of everything that is made here."
  default     = {}
  nullable    = false
}
