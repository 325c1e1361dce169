output "server_role_arn" {
  description = "ARN of the servers' role."
  value       = aws_iam_role.role["server"].arn
}

output "server_role_name" {
  description = "Name of the servers' role. What people need to get onto a server, such as AmazonSSMManagedInstanceCore, is added to it."
  value       = aws_iam_role.role["server"].name
}

output "agent_role_arn" {
  description = "ARN of the instances' role. What instances need of AWS for their own work is added to it."
  value       = aws_iam_role.role["agent"].arn
}

output "agent_role_name" {
  description = "Name of the instances' role."
  value       = aws_iam_role.role["agent"].name
}

output "server_profile_name" {
  description = "Name of the servers' instance profile, once its role has its rights."
  value       = aws_iam_instance_profile.profile["server"].name
  depends_on  = [aws_iam_role_policy.policy]
}

output "agent_profile_name" {
  description = "Name of the instances' instance profile, once its role has its rights."
  value       = aws_iam_instance_profile.profile["agent"].name
  depends_on  = [aws_iam_role_policy.policy]
}
