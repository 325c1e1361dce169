// Package provider serves the types of the catalog by Terraform's plugin protocol 5, like the real
// provider: https://developer.hashicorp.com/terraform/plugin/terraform-plugin-protocol.
//
// It creates and stores nothing: a resource's values depend only on its configuration, so the same
// configuration has the same ids in each run, and two resources of one type with the same
// configuration have the same ids.
package provider

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/zclconf/go-cty/cty"

	"github.com/nstance/nstance/integration/terraform/stub/catalog"
)

// account is the account of AWS's own examples.
const account = "111122223333"

// Server implements the protocol. It is safe for concurrent use.
type Server struct {
	types  catalog.Types
	schema *tfprotov5.GetProviderSchemaResponse

	mu     sync.Mutex
	region string
	tags   cty.Value // default_tags, null without
}

var _ tfprotov5.ProviderServer = (*Server)(nil)

// New returns a server of types.
func New(types catalog.Types) (*Server, error) {
	schema, err := schemas(types)
	if err != nil {
		return nil, err
	}
	return &Server{types: types, schema: schema, tags: cty.NullVal(cty.Map(cty.String))}, nil
}

// GetMetadata lists the types.
func (s *Server) GetMetadata(context.Context, *tfprotov5.GetMetadataRequest) (*tfprotov5.GetMetadataResponse, error) {
	out := &tfprotov5.GetMetadataResponse{ServerCapabilities: s.schema.ServerCapabilities}
	for name := range s.types.Resources {
		out.Resources = append(out.Resources, tfprotov5.ResourceMetadata{TypeName: name})
	}
	for name := range s.types.Data {
		out.DataSources = append(out.DataSources, tfprotov5.DataSourceMetadata{TypeName: name})
	}
	for name := range s.types.Ephemeral {
		out.EphemeralResources = append(out.EphemeralResources, tfprotov5.EphemeralResourceMetadata{TypeName: name})
	}
	return out, nil
}

// GetProviderSchema returns all types.
func (s *Server) GetProviderSchema(context.Context, *tfprotov5.GetProviderSchemaRequest) (*tfprotov5.GetProviderSchemaResponse, error) {
	return s.schema, nil
}

// PrepareProviderConfig accepts what Terraform has checked against the schema.
func (s *Server) PrepareProviderConfig(
	_ context.Context, req *tfprotov5.PrepareProviderConfigRequest,
) (*tfprotov5.PrepareProviderConfigResponse, error) {
	return &tfprotov5.PrepareProviderConfigResponse{PreparedConfig: req.Config}, nil
}

// ConfigureProvider stores the region and the tags of all resources. As with the real provider, a
// region has to come from the configuration or the environment.
func (s *Server) ConfigureProvider(
	_ context.Context, req *tfprotov5.ConfigureProviderRequest,
) (*tfprotov5.ConfigureProviderResponse, error) {
	out := &tfprotov5.ConfigureProviderResponse{}
	config, err := decode(req.Config, s.types.Provider.Type())
	if err != nil {
		out.Diagnostics = failed(err)
		return out, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.region, s.tags = os.Getenv("AWS_REGION"), cty.NullVal(cty.Map(cty.String))
	if region := config.GetAttr("region"); region.IsKnown() && !region.IsNull() {
		s.region = region.AsString()
	}
	if s.region == "" {
		out.Diagnostics = failed(fmt.Errorf("region: want one, in the provider's block or in AWS_REGION"))
	}
	for _, block := range elements(config.GetAttr("default_tags")) {
		s.tags = block.GetAttr("tags")
	}
	return out, nil
}

// StopProvider does nothing.
func (s *Server) StopProvider(context.Context, *tfprotov5.StopProviderRequest) (*tfprotov5.StopProviderResponse, error) {
	return &tfprotov5.StopProviderResponse{}, nil
}

// failed returns an error as Terraform shows it.
func failed(err error) []*tfprotov5.Diagnostic {
	return []*tfprotov5.Diagnostic{{Severity: tfprotov5.DiagnosticSeverityError, Summary: err.Error()}}
}

// elements returns the elements of a known list or set.
func elements(v cty.Value) []cty.Value {
	if v.IsNull() || !v.IsKnown() {
		return nil
	}
	return v.AsValueSlice()
}
