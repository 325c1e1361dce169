package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"

	"github.com/nstance/nstance/integration/terraform/stub/catalog"
)

// ValidateDataSourceConfig does nothing: Terraform validates against the schema.
func (s *Server) ValidateDataSourceConfig(
	context.Context, *tfprotov5.ValidateDataSourceConfigRequest,
) (*tfprotov5.ValidateDataSourceConfigResponse, error) {
	return &tfprotov5.ValidateDataSourceConfigResponse{}, nil
}

// ReadDataSource answers as if every requested object existed.
func (s *Server) ReadDataSource(_ context.Context, req *tfprotov5.ReadDataSourceRequest) (*tfprotov5.ReadDataSourceResponse, error) {
	state, err := s.read(req.TypeName, s.types.Data[req.TypeName], req.Config)
	if err != nil {
		return &tfprotov5.ReadDataSourceResponse{Diagnostics: failed(err)}, nil
	}
	return &tfprotov5.ReadDataSourceResponse{State: state}, nil
}

// ValidateEphemeralResourceConfig does nothing: Terraform validates against the schema.
func (s *Server) ValidateEphemeralResourceConfig(
	context.Context, *tfprotov5.ValidateEphemeralResourceConfigRequest,
) (*tfprotov5.ValidateEphemeralResourceConfigResponse, error) {
	return &tfprotov5.ValidateEphemeralResourceConfigResponse{}, nil
}

// OpenEphemeralResource returns a value that is not stored.
func (s *Server) OpenEphemeralResource(
	_ context.Context, req *tfprotov5.OpenEphemeralResourceRequest,
) (*tfprotov5.OpenEphemeralResourceResponse, error) {
	result, err := s.read(req.TypeName, s.types.Ephemeral[req.TypeName], req.Config)
	if err != nil {
		return &tfprotov5.OpenEphemeralResourceResponse{Diagnostics: failed(err)}, nil
	}
	return &tfprotov5.OpenEphemeralResourceResponse{Result: result}, nil
}

// RenewEphemeralResource is never called: no value expires.
func (s *Server) RenewEphemeralResource(
	context.Context, *tfprotov5.RenewEphemeralResourceRequest,
) (*tfprotov5.RenewEphemeralResourceResponse, error) {
	return &tfprotov5.RenewEphemeralResourceResponse{}, nil
}

// CloseEphemeralResource does nothing.
func (s *Server) CloseEphemeralResource(
	context.Context, *tfprotov5.CloseEphemeralResourceRequest,
) (*tfprotov5.CloseEphemeralResourceResponse, error) {
	return &tfprotov5.CloseEphemeralResourceResponse{}, nil
}

// read sets all values of a configuration at once.
func (s *Server) read(name string, kind catalog.Kind, config *tfprotov5.DynamicValue) (*tfprotov5.DynamicValue, error) {
	value, err := decode(config, kind.Type())
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	value, err = s.settle(name, kind, s.unknowns(kind, value, value, true), value, 1)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return encode(value, kind.Type())
}
