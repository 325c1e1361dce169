package provider

import (
	"context"
	"errors"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
)

// Parts of the protocol that the checks don't use.

var errUnused = errors.New("the stub of the provider doesn't do this: use the real one")

// ImportResourceState is refused.
func (s *Server) ImportResourceState(
	context.Context, *tfprotov5.ImportResourceStateRequest,
) (*tfprotov5.ImportResourceStateResponse, error) {
	return &tfprotov5.ImportResourceStateResponse{Diagnostics: failed(errUnused)}, nil
}

// MoveResourceState is refused.
func (s *Server) MoveResourceState(
	context.Context, *tfprotov5.MoveResourceStateRequest,
) (*tfprotov5.MoveResourceStateResponse, error) {
	return &tfprotov5.MoveResourceStateResponse{Diagnostics: failed(errUnused)}, nil
}

// UpgradeResourceIdentity is refused.
func (s *Server) UpgradeResourceIdentity(
	context.Context, *tfprotov5.UpgradeResourceIdentityRequest,
) (*tfprotov5.UpgradeResourceIdentityResponse, error) {
	return &tfprotov5.UpgradeResourceIdentityResponse{Diagnostics: failed(errUnused)}, nil
}

// GetResourceIdentitySchemas has none.
func (s *Server) GetResourceIdentitySchemas(
	context.Context, *tfprotov5.GetResourceIdentitySchemasRequest,
) (*tfprotov5.GetResourceIdentitySchemasResponse, error) {
	return &tfprotov5.GetResourceIdentitySchemasResponse{}, nil
}

// GetFunctions has none.
func (s *Server) GetFunctions(context.Context, *tfprotov5.GetFunctionsRequest) (*tfprotov5.GetFunctionsResponse, error) {
	return &tfprotov5.GetFunctionsResponse{}, nil
}

// CallFunction is refused.
func (s *Server) CallFunction(context.Context, *tfprotov5.CallFunctionRequest) (*tfprotov5.CallFunctionResponse, error) {
	return &tfprotov5.CallFunctionResponse{Error: &tfprotov5.FunctionError{Text: errUnused.Error()}}, nil
}

// GenerateResourceConfig is refused.
func (s *Server) GenerateResourceConfig(
	context.Context, *tfprotov5.GenerateResourceConfigRequest,
) (*tfprotov5.GenerateResourceConfigResponse, error) {
	return &tfprotov5.GenerateResourceConfigResponse{Diagnostics: failed(errUnused)}, nil
}
