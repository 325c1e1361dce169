variable "load_balancers" {
  type = map(object({
    target_group_arns = optional(list(string))
    port              = optional(number)
    target_port       = optional(number)
    protocol          = optional(string, "TCP")
    internal          = optional(bool, true)
    subnet_ids        = optional(list(string), [])
    cidrs             = optional(list(string), [])
    health_port       = optional(number)
    health_path       = optional(string)
    drain_seconds     = optional(number, 60)
    tenants           = optional(set(string))

    preserve_client_ip = optional(bool, true)
  }))
  description = <<-EOT
    Load balancers that groups can use, by name. With `target_group_arns`, instances are registered with these existing target groups,
    which need the tags `nstance:managed` = `true` and `nstance:cluster-id`. With `port`, the module creates a network load balancer in
    `subnet_ids` (public subnets with `internal = false`). It accepts connections from `cidrs` at `port` and forwards them to
    `target_port` of the instances (default: `port`). Health checks connect to `health_port` (default: `target_port`) by TCP, or by HTTP
    with `health_path`. A deregistered instance keeps its connections for `drain_seconds`. Instances see the addresses of the clients,
    or with `preserve_client_ip = false` those of the load balancer; use the latter if instances are its clients too, since
    a connection that comes back to its own machine fails otherwise. `tenants` are the tenants whose groups may use the load balancer,
    `["*"]` for all; unset means only `default`.
  EOT
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for lb in var.load_balancers : (lb.target_group_arns == null) != (lb.port == null)])
    error_message = "load_balancers: want either target_group_arns, or port to make a load balancer"
  }
  validation {
    condition     = alltrue([for lb in var.load_balancers : lb.port == null || length(lb.subnet_ids) > 0])
    error_message = "load_balancers: subnet_ids: want at least one beside port"
  }
  validation {
    condition     = alltrue([for lb in var.load_balancers : contains(["TCP", "UDP", "TCP_UDP"], lb.protocol)])
    error_message = "load_balancers: protocol: want TCP, UDP or TCP_UDP"
  }
  validation {
    condition     = alltrue([for lb in var.load_balancers : coalesce(lb.preserve_client_ip, true) || lb.protocol == "TCP"])
    error_message = "load_balancers: preserve_client_ip: want true for UDP and TCP_UDP: AWS always preserves theirs"
  }
  validation {
    condition = alltrue(flatten([
      for lb in var.load_balancers : [for p in [lb.port, lb.target_port, lb.health_port] : p == null || try(p >= 1 && p <= 65535, false)]
    ]))
    error_message = "load_balancers: port, target_port, health_port: want 1 to 65535"
  }
  validation {
    condition = alltrue([
      for n in keys(var.load_balancers) : can(regex("^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", n)) && length(n) <= 64
    ])
    error_message = join("", [
      "load_balancers: want names of letters, digits and inner dots, hyphens and underscores, at most 64: ",
      join(", ", keys(var.load_balancers)),
    ])
  }
  validation {
    condition = alltrue([
      for lb in var.load_balancers : lb.target_group_arns == null || try(
        length(lb.target_group_arns) > 0 && alltrue([for arn in lb.target_group_arns : startswith(arn, "arn:")]), false
      )
    ])
    error_message = "load_balancers: target_group_arns: want at least one, and ARNs (arn:aws:elasticloadbalancing:...)"
  }
  validation {
    condition     = alltrue([for lb in var.load_balancers : lb.port == null || length(lb.cidrs) > 0])
    error_message = "load_balancers: cidrs: want at least one range beside port, such as 10.0.0.0/8: it could not be reached otherwise"
  }
  validation {
    condition = alltrue(flatten([for lb in var.load_balancers : [for c in lb.cidrs : try(cidrsubnet(c, 0, 0) == c, false)]]))
    error_message = join("", [
      "load_balancers: cidrs: want ranges by their first address, such as 10.0.0.0/8 or 2001:db8::/32, not ",
      join(", ", flatten([for lb in var.load_balancers : lb.cidrs])),
    ])
  }
  validation {
    condition = alltrue([for lb in var.load_balancers : lb.health_path == null || try(startswith(lb.health_path, "/"), false)])
    error_message = join("", [
      "load_balancers: health_path: want one that begins with /, such as /healthz, not ",
      join(", ", [for n, lb in var.load_balancers : "${lb.health_path} (${n})" if lb.health_path != null]),
    ])
  }
  validation {
    condition = alltrue([
      for lb in var.load_balancers : lb.drain_seconds >= 0 && lb.drain_seconds <= 3600 && floor(lb.drain_seconds) == lb.drain_seconds
    ])
    error_message = join("", [
      "load_balancers: drain_seconds: want a whole number from 0 to 3600, not ",
      join(", ", [for n, lb in var.load_balancers : "${lb.drain_seconds} (${n})"]),
    ])
  }
}
