variable "standbys" {
  type        = number
  description = <<-EOT
    Number of standby servers. With 0 the leader's address belongs to a dedicated network interface (ENI), which the next server
    attaches. With 1 or more it is a secondary address of the leader's own interface, which moves in one call; `leader_ipv4_address`
    (and `leader_ipv6_address`, with IPv6) is then required.
  EOT
  default     = 0
  nullable    = false

  validation {
    condition     = var.standbys >= 0 && var.standbys <= 4 && floor(var.standbys) == var.standbys
    error_message = "standbys: want a whole number from 0 to 4"
  }
}

variable "enable_leader_ipv4" {
  type        = bool
  description = "Whether the leader has an IPv4 address."
  default     = true
  nullable    = false

  validation {
    condition     = var.enable_leader_ipv4 || var.enable_leader_ipv6
    error_message = "enable_leader_ipv4: want true, unless enable_leader_ipv6 is: the leader needs an address"
  }
}

variable "leader_ipv4_address" {
  type        = string
  description = <<-EOT
    The IPv4 address that follows the leader, from the subnet's range. `null` lets AWS choose one, which only works without standbys.
  EOT
  default     = null

  validation {
    condition     = var.leader_ipv4_address == null || var.enable_leader_ipv4
    error_message = "leader_ipv4_address: want null, or enable_leader_ipv4 = true with it"
  }
  validation {
    condition = var.leader_ipv4_address == null || try(
      cidrhost("${var.leader_ipv4_address}/32", 0) == var.leader_ipv4_address, false
    )
    error_message = "leader_ipv4_address: want an IPv4 address such as 10.0.0.10, not ${coalesce(var.leader_ipv4_address, "none")}"
  }
  # Anything that is not an address has failed the check above.
  validation {
    condition = var.leader_ipv4_address == null || try(
      cidrsubnet("${var.leader_ipv4_address}/${split("/", var.subnet.cidr)[1]}", 0, 0) == cidrsubnet(var.subnet.cidr, 0, 0), true
    )
    error_message = "leader_ipv4_address: want one of the subnet, ${var.subnet.cidr}, not ${coalesce(var.leader_ipv4_address, "none")}"
  }
  validation {
    condition = !try(contains([for n in [0, 1, 2, 3, -1] : cidrhost(var.subnet.cidr, n)], var.leader_ipv4_address), false)
    error_message = join("", [
      "leader_ipv4_address: want none of those that AWS reserves in ${var.subnet.cidr}, the first four and the last, not ",
      coalesce(var.leader_ipv4_address, "none"),
    ])
  }
  validation {
    condition     = var.standbys == 0 || !var.enable_leader_ipv4 || var.leader_ipv4_address != null
    error_message = "leader_ipv4_address: required with standbys, since no network interface reserves an address"
  }
}

variable "enable_leader_ipv6" {
  type        = bool
  description = "Whether the leader has an IPv6 address. The subnet then needs an IPv6 range."
  default     = false
  nullable    = false

  validation {
    condition     = !var.enable_leader_ipv6 || (var.subnet.ipv6_cidr == null ? false : var.subnet.ipv6_cidr != "")
    error_message = "enable_leader_ipv6: want false, not true: the subnet, ${var.subnet.cidr}, has no IPv6 range (subnet.ipv6_cidr)"
  }
}

variable "leader_ipv6_address" {
  type        = string
  description = <<-EOT
    The IPv6 address that follows the leader, from the subnet's range. `null` lets AWS choose one, which only works without standbys.
  EOT
  default     = null

  validation {
    condition     = var.leader_ipv6_address == null || var.enable_leader_ipv6
    error_message = "leader_ipv6_address: want null, or enable_leader_ipv6 = true with it"
  }
  validation {
    condition = var.leader_ipv6_address == null || try(
      cidrhost("${var.leader_ipv6_address}/128", 0) == var.leader_ipv6_address, false
    )
    error_message = join("", [
      "leader_ipv6_address: want an IPv6 address in its shortest form, lowercase, such as 2001:db8::10, not ",
      coalesce(var.leader_ipv6_address, "none"),
    ])
  }
  # Anything that is not an address has failed the check above.
  validation {
    condition = var.leader_ipv6_address == null || try(
      cidrsubnet("${var.leader_ipv6_address}/${split("/", var.subnet.ipv6_cidr)[1]}", 0, 0) == cidrsubnet(var.subnet.ipv6_cidr, 0, 0), true
    )
    error_message = join("", [
      "leader_ipv6_address: want one of the subnet, ${coalesce(var.subnet.ipv6_cidr, "which has no range")}, not ",
      coalesce(var.leader_ipv6_address, "none"),
    ])
  }
  validation {
    condition = !try(contains([for n in [0, 1, 2, 3, -1] : cidrhost(var.subnet.ipv6_cidr, n)], var.leader_ipv6_address), false)
    error_message = join("", [
      "leader_ipv6_address: want none of those that AWS reserves in ${coalesce(var.subnet.ipv6_cidr, "the subnet")}, ",
      "the first four and the last, not ",
      coalesce(var.leader_ipv6_address, "none"),
    ])
  }
  validation {
    condition     = var.standbys == 0 || !var.enable_leader_ipv6 || var.leader_ipv6_address != null
    error_message = "leader_ipv6_address: required with standbys and IPv6, since no network interface reserves an address"
  }
}
