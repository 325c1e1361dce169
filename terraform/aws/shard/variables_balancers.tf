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
  }))
  description = <<-EOT
    Load balancers that groups can name. With `target_group_arns` those target groups, which somebody else made, and which servers
    may use if they have the tags `nstance:managed` = `true` and `nstance:cluster-id`. With `port` a network
    load balancer is made in `subnet_ids` (public ones with `internal = false`), which listens at `port` for `cidrs` and passes on to
    `target_port` of the instances (the same port unless set). Whether an instance does well is asked by TCP at `health_port`, or by
    HTTP at `health_path` there.
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
    condition = alltrue(flatten([
      for lb in var.load_balancers : [for p in [lb.port, lb.target_port, lb.health_port] : p == null || try(p >= 1 && p <= 65535, false)]
    ]))
    error_message = "load_balancers: port, target_port, health_port: want 1 to 65535"
  }
}
