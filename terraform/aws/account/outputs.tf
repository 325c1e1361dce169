output "server_role_arn" {
  description = "ARN of the servers' role."
  value       = aws_iam_role.role["server"].arn
}

output "server_role_name" {
  description = "Name of the servers' role, to attach policies for logins, such as AmazonSSMManagedInstanceCore."
  value       = aws_iam_role.role["server"].name
}

output "agent_role_arn" {
  description = "ARN of the instances' role."
  value       = aws_iam_role.role["agent"].arn
}

output "agent_role_name" {
  description = "Name of the instances' role, to attach policies that the instances' own work needs."
  value       = aws_iam_role.role["agent"].name
}

output "server_profile_name" {
  description = "Name of the servers' instance profile. Available once its role has its policies."
  value       = aws_iam_instance_profile.profile["server"].name
  depends_on  = [aws_iam_role_policy.policy]
}

output "agent_profile_name" {
  description = "Name of the instances' instance profile. Available once its role has its policies."
  value       = aws_iam_instance_profile.profile["agent"].name
  depends_on  = [aws_iam_role_policy.policy]
}
