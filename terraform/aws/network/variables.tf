variable "name" {
  type        = string
  description = "Prefix of the names of all resources."
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9 ._-]{0,99}$", var.name))
    error_message = "name: want 1 to 100 letters, digits, spaces, dots, underscores and hyphens"
  }
}

variable "cluster_id" {
  type        = string
  description = <<-EOT
    ID of the cluster that uses the subnets. They are tagged `nstance:cluster-id` with it, since its servers may only launch instances
    into subnets with that tag. Existing subnets must have the tag already.
  EOT
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9]+(-[a-z0-9]+)*$", var.cluster_id)) && length(var.cluster_id) <= 32
    error_message = "cluster_id: want lowercase letters, digits and single inner hyphens, at most 32 characters"
  }
}

variable "vpc_cidr" {
  type        = string
  description = "IPv4 range of a new VPC. Use either this or `vpc_id`."
  default     = null

  validation {
    condition     = (var.vpc_cidr == null) != (var.vpc_id == null)
    error_message = "vpc_cidr: want either vpc_cidr, for a new VPC, or vpc_id, for one that exists"
  }
  validation {
    condition = var.vpc_cidr == null || try(
      !strcontains(var.vpc_cidr, ":") && cidrsubnet(var.vpc_cidr, 0, 0) == var.vpc_cidr &&
      tonumber(split("/", var.vpc_cidr)[1]) >= 16 && tonumber(split("/", var.vpc_cidr)[1]) <= 28, false
    )
    error_message = join("", [
      "vpc_cidr: want an IPv4 range by its first address, /16 to /28, such as 10.0.0.0/16, not ", coalesce(var.vpc_cidr, "none"),
    ])
  }
}

variable "vpc_secondary_cidrs" {
  type        = list(string)
  description = "More IPv4 ranges, from which subnets can be taken too. A new VPC gets them; an existing VPC must have them already."
  default     = []
  nullable    = false

  validation {
    condition = alltrue([
      for c in var.vpc_secondary_cidrs : try(
        !strcontains(c, ":") && cidrsubnet(c, 0, 0) == c && tonumber(split("/", c)[1]) >= 16 && tonumber(split("/", c)[1]) <= 28, false
      )
    ])
    error_message = join("", [
      "vpc_secondary_cidrs: want IPv4 ranges by their first address, /16 to /28, such as 100.64.0.0/16, not ",
      join(", ", var.vpc_secondary_cidrs),
    ])
  }
}

variable "vpc_id" {
  type        = string
  description = "ID of an existing VPC. Use either this or `vpc_cidr`."
  default     = null

  validation {
    condition     = var.vpc_id == null || can(regex("^vpc-", var.vpc_id))
    error_message = "vpc_id: want the ID of a VPC, such as vpc-0123456789abcdef0"
  }
}

variable "internet_gateway_id" {
  type        = string
  description = "ID of the internet gateway of the existing VPC. Required for new public subnets in it. A new VPC gets its own gateway."
  default     = null

  validation {
    condition     = var.internet_gateway_id == null || var.vpc_cidr == null
    error_message = "internet_gateway_id: want it with vpc_id only: a new VPC gets its own gateway"
  }
}

variable "enable_ipv6" {
  type        = bool
  description = "Whether the VPC has an IPv6 range. A new VPC gets one of Amazon's; an existing VPC must have one already."
  default     = false
  nullable    = false
}

variable "subnets" {
  type = map(object({
    role        = string
    zone        = optional(string)
    cidr        = optional(string)
    ipv6_number = optional(number)
    id          = optional(string)
    pool        = optional(string)
  }))
  description = <<-EOT
    The subnets, by name. `role` is `public` (routed through the internet gateway, with public addresses), `private` (outbound through a
    NAT gateway) or `isolated` (no internet access). A new subnet needs `zone` and `cidr`; `ipv6_number` also gives it the /64 with that
    number from the VPC's IPv6 range. For an existing subnet set `id` instead; it keeps its own routes. `pool` adds the subnet to the
    subnet pool of that name in the output `subnet_pools`.
  EOT
  nullable    = false

  validation {
    condition     = length(var.subnets) > 0
    error_message = "subnets: want at least one"
  }
  validation {
    condition     = alltrue([for s in var.subnets : contains(["public", "private", "isolated"], s.role)])
    error_message = "subnets: role: want public, private or isolated, not ${join(", ", [for n, s in var.subnets : "${s.role} (${n})"])}"
  }
  validation {
    condition     = alltrue([for s in var.subnets : (s.cidr == null) != (s.id == null) && (s.cidr == null) == (s.zone == null)])
    error_message = "subnets: want either zone and cidr, for a new subnet, or id, for one that exists"
  }
  validation {
    condition = alltrue([
      for s in var.subnets : s.cidr == null || try(
        !strcontains(s.cidr, ":") && cidrsubnet(s.cidr, 0, 0) == s.cidr &&
        tonumber(split("/", s.cidr)[1]) >= 16 && tonumber(split("/", s.cidr)[1]) <= 28, false
      )
    ])
    error_message = join("", [
      "subnets: cidr: want IPv4 ranges by their first address, /16 to /28, such as 10.0.1.0/24, not ",
      join(", ", [for n, s in var.subnets : "${s.cidr} (${n})" if s.cidr != null]),
    ])
  }
  # Anything that is not a range has failed the check above.
  validation {
    condition = alltrue([
      for s in var.subnets : s.cidr == null || var.vpc_cidr == null || anytrue([
        for c in concat([var.vpc_cidr], var.vpc_secondary_cidrs) : try(
          tonumber(split("/", s.cidr)[1]) >= tonumber(split("/", c)[1]) &&
          cidrsubnet("${cidrhost(s.cidr, 0)}/${split("/", c)[1]}", 0, 0) == cidrsubnet(c, 0, 0), true
        )
      ])
    ])
    error_message = join("", [
      "subnets: cidr: want ranges within the VPC's, ${coalesce(var.vpc_cidr, "none")}, not ",
      join(", ", [for n, s in var.subnets : "${s.cidr} (${n})" if s.cidr != null]),
    ])
  }
  validation {
    condition = alltrue(flatten([
      for a, x in var.subnets : [
        for b, y in var.subnets : a == b || x.cidr == null || y.cidr == null || try(
          cidrsubnet("${cidrhost(x.cidr, 0)}/${min(split("/", x.cidr)[1], split("/", y.cidr)[1])}", 0, 0) !=
          cidrsubnet("${cidrhost(y.cidr, 0)}/${min(split("/", x.cidr)[1], split("/", y.cidr)[1])}", 0, 0), true
        )
      ]
    ]))
    error_message = join("", [
      "subnets: cidr: want ranges of which no two overlap, not ",
      join(", ", [for n, s in var.subnets : "${s.cidr} (${n})" if s.cidr != null]),
    ])
  }
  validation {
    condition = alltrue([
      for s in var.subnets : s.ipv6_number == null ? true : (
        s.cidr != null && s.ipv6_number >= 0 && s.ipv6_number <= 255 && floor(s.ipv6_number) == s.ipv6_number
      )
    ])
    error_message = join("", [
      "subnets: ipv6_number: want a whole number from 0 to 255, and that for new subnets only, not ",
      join(", ", [for n, s in var.subnets : "${s.ipv6_number} (${n})" if s.ipv6_number != null]),
    ])
  }
  validation {
    condition = (
      length(distinct([for s in var.subnets : s.ipv6_number if s.ipv6_number != null])) ==
      length([for s in var.subnets : s.ipv6_number if s.ipv6_number != null])
    )
    error_message = join("", [
      "subnets: ipv6_number: want another one for each subnet, not ",
      join(", ", [for n, s in var.subnets : "${s.ipv6_number} (${n})" if s.ipv6_number != null]),
    ])
  }
  validation {
    condition     = alltrue([for s in var.subnets : s.pool == null || can(regex("^[a-z0-9]+(-[a-z0-9]+)*$", s.pool))])
    error_message = "subnets: pool: want lowercase letters, digits and single inner hyphens"
  }
  validation {
    condition     = var.enable_ipv6 || alltrue([for s in var.subnets : s.ipv6_number == null])
    error_message = "subnets: ipv6_number: want enable_ipv6 = true with it"
  }
  validation {
    condition = (
      var.vpc_id == null || var.internet_gateway_id != null ||
      alltrue([for s in var.subnets : s.cidr == null || s.role != "public"])
    )
    error_message = "internet_gateway_id: required to create public subnets in a VPC that exists"
  }
}

variable "nat" {
  type        = string
  description = <<-EOT
    NAT gateways for private subnets: `none`, `single` (one for all zones, which costs less but fails with its zone) or `per-zone`. Each
    is in a public subnet of its zone. `none` is only for private subnets that have IPv6 and are for instances alone: servers call AWS by
    IPv4.
  EOT
  default     = "none"
  nullable    = false

  validation {
    condition     = contains(["none", "single", "per-zone"], var.nat)
    error_message = "nat: want none, single or per-zone, not ${var.nat}"
  }
  validation {
    condition     = var.nat != "single" || anytrue([for s in var.subnets : s.role == "public"])
    error_message = "nat: single wants a public subnet for the gateway"
  }
  validation {
    condition = var.nat != "per-zone" || alltrue([
      for s in var.subnets : s.role != "private" || s.cidr == null || anytrue([
        for p in var.subnets : p.role == "public" && p.zone == s.zone && p.zone != null
      ])
    ])
    error_message = "nat: per-zone wants a new public subnet in each zone that has a private one"
  }
  validation {
    condition     = var.nat != "none" || alltrue([for s in var.subnets : s.role != "private" || s.cidr == null || s.ipv6_number != null])
    error_message = "nat: want single or per-zone for private subnets without IPv6, or role isolated: they would have no internet access"
  }
  validation {
    condition = (
      var.nat != "none" || anytrue([for s in var.subnets : s.role == "public"]) ||
      alltrue([for s in var.subnets : s.role != "private" || s.cidr == null || s.ipv6_number == null || s.pool != null]) ||
      anytrue([for s in var.subnets : s.role == "isolated"]) && (
        var.interface_endpoints == null ? true : length(setsubtract(["ec2", "autoscaling"], var.interface_endpoints)) == 0
      )
    )
    error_message = join("", [
      "nat: want single or per-zone, not none, for private subnets that may have servers: those call EC2 and Auto Scaling, which ",
      "answer by IPv4 only. pool says that a subnet is for instances, which don't: ",
      join(", ", [for n, s in var.subnets : n if s.role == "private" && s.cidr != null && s.pool == null]),
    ])
  }
}

variable "interface_endpoints" {
  type        = set(string)
  description = <<-EOT
    AWS services that isolated subnets reach through interface endpoints, each of which costs money per hour and zone. `null` means
    `ec2`, `secretsmanager` and `autoscaling`, which every server needs, if there are isolated subnets, and otherwise none. A shard with
    load balancers also needs `elasticloadbalancing`, and one whose encryption key is a parameter needs `ssm`. Endpoints are for this
    region only: a key or secrets in another region need internet access.
  EOT
  default     = null

  validation {
    condition     = alltrue([for s in coalesce(var.interface_endpoints, []) : can(regex("^[a-z0-9.-]+$", s))])
    error_message = "interface_endpoints: want names of services, such as ec2, secretsmanager, ssm or elasticloadbalancing"
  }
}

variable "tags" {
  type        = map(string)
  description = "Tags for all resources of this module."
  default     = {}
  nullable    = false
}
