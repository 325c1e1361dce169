variable "name" {
  type        = string
  description = "What the names of everything here begin with."
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9 ._-]{0,99}$", var.name))
    error_message = "name: want 1 to 100 letters, digits, spaces, dots, underscores and hyphens"
  }
}

variable "vpc" {
  type = object({
    cidr                = optional(string)
    secondary_cidrs     = optional(list(string), [])
    ipv6                = optional(bool, false)
    id                  = optional(string)
    internet_gateway_id = optional(string)
  })
  description = <<-EOT
    The VPC. With `cidr` a new one is made, with `ipv6` one that has a range of Amazon's IPv6 addresses too. With `id` an existing one
    is used; then `internet_gateway_id` is required for public subnets, and `ipv6` says that the VPC has such a range.
    `secondary_cidrs` are further ranges, of which subnets may be too: a new one is given them, and one that exists has them already.
  EOT
  nullable    = false

  validation {
    condition     = (var.vpc.cidr == null) != (var.vpc.id == null)
    error_message = "vpc: want either cidr, for a new VPC, or id, for one that exists"
  }
  validation {
    condition = var.vpc.cidr == null || try(
      !strcontains(var.vpc.cidr, ":") && cidrsubnet(var.vpc.cidr, 0, 0) == var.vpc.cidr &&
      tonumber(split("/", var.vpc.cidr)[1]) >= 16 && tonumber(split("/", var.vpc.cidr)[1]) <= 28, false
    )
    error_message = join("", [
      "vpc.cidr: want an IPv4 range by its first address, /16 to /28, such as 10.0.0.0/16, not ", coalesce(var.vpc.cidr, "none"),
    ])
  }
  validation {
    condition = alltrue([
      for c in var.vpc.secondary_cidrs : try(
        !strcontains(c, ":") && cidrsubnet(c, 0, 0) == c && tonumber(split("/", c)[1]) >= 16 && tonumber(split("/", c)[1]) <= 28, false
      )
    ])
    error_message = join("", [
      "vpc.secondary_cidrs: want IPv4 ranges by their first address, /16 to /28, such as 100.64.0.0/16, not ",
      join(", ", var.vpc.secondary_cidrs),
    ])
  }
  validation {
    condition     = var.vpc.cidr == null || var.vpc.internet_gateway_id == null
    error_message = "vpc.internet_gateway_id: want it beside vpc.id only: a new VPC gets a gateway of its own"
  }
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
    The subnets by name. `role` is `public` (a route to the internet gateway, and public addresses), `private` (out through a NAT
    gateway) or `isolated` (no way out). A new one has `zone` and `cidr`, and with `ipv6_number` the /64 of that number of the VPC's
    IPv6 range. One that exists has its `id` instead, and keeps its own routes. `pool` puts the subnet into the subnet pool of that
    name in the output `subnet_pools`.
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
  # What is no range at all is told above.
  validation {
    condition = alltrue([
      for s in var.subnets : s.cidr == null || var.vpc.cidr == null || anytrue([
        for c in concat([var.vpc.cidr], var.vpc.secondary_cidrs) : try(
          tonumber(split("/", s.cidr)[1]) >= tonumber(split("/", c)[1]) &&
          cidrsubnet("${cidrhost(s.cidr, 0)}/${split("/", c)[1]}", 0, 0) == cidrsubnet(c, 0, 0), true
        )
      ])
    ])
    error_message = join("", [
      "subnets: cidr: want ranges within the VPC's, ${coalesce(var.vpc.cidr, "none")}, not ",
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
    condition     = var.vpc.ipv6 || alltrue([for s in var.subnets : s.ipv6_number == null])
    error_message = "subnets: ipv6_number: want vpc.ipv6 = true beside it"
  }
  validation {
    condition = (
      var.vpc.id == null || var.vpc.internet_gateway_id != null ||
      alltrue([for s in var.subnets : s.cidr == null || s.role != "public"])
    )
    error_message = "vpc.internet_gateway_id: required to make public subnets in a VPC that exists"
  }
}

variable "nat" {
  type        = string
  description = <<-EOT
    NAT gateways for private subnets: `none`, `single` (one for all zones: cheaper, and gone with its zone) or `per-zone`. Each is in
    a public subnet of its zone. `none` is for those with IPv6 and instances alone: servers call AWS by IPv4, and
    need another subnet.
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
    error_message = "nat: want single or per-zone for private subnets without IPv6: they would have no way out (role isolated says that)"
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
    AWS services that isolated subnets reach through endpoints of their own, at a price an hour and zone each. null: with isolated
    subnets `ec2`, `secretsmanager` and `autoscaling`, what a server can't do without, and none otherwise. A shard with load balancers
    needs `elasticloadbalancing` too, and one whose key is a parameter `ssm`. They lead to this region only: a key or secrets of
    another one take a way out.
  EOT
  default     = null

  validation {
    condition     = alltrue([for s in coalesce(var.interface_endpoints, []) : can(regex("^[a-z0-9.-]+$", s))])
    error_message = "interface_endpoints: want names of services, such as ec2, secretsmanager, ssm or elasticloadbalancing"
  }
}

variable "tags" {
  type        = map(string)
  description = "Tags of everything that is made here."
  default     = {}
  nullable    = false
}
