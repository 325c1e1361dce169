output "arn" {
  description = "ARN of the secret. Available once it has its value."
  value       = aws_secretsmanager_secret.key.arn
  depends_on  = [aws_secretsmanager_secret_version.key]
}
