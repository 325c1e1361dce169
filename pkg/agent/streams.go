package agent

import (
	"context"
	"log/slog"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// readKeyRequests reads the stream of key requests until it ends.
func (h *holder) readKeyRequests(service nstancev1.AgentServiceClient) func(context.Context, func()) error {
	return func(ctx context.Context, opened func()) error {
		stream, err := service.KeyGenRequests(ctx, &nstancev1.KeyGenRequestsRequest{})
		if err != nil {
			return err
		}
		opened()
		for {
			request, err := stream.Recv()
			if err != nil {
				return err
			}
			h.Logger.LogAttrs(ctx, slog.LevelWarn, "ignored a request that this version does not answer",
				slog.String("stream", StreamKeys), slog.Int("keys", len(request.GetKeys())))
		}
	}
}

// readFiles reads the stream of files until it ends.
func (h *holder) readFiles(service nstancev1.AgentServiceClient) func(context.Context, func()) error {
	return func(ctx context.Context, opened func()) error {
		stream, err := service.ReceiveFiles(ctx, &nstancev1.ReceiveFilesRequest{})
		if err != nil {
			return err
		}
		opened()
		for {
			event, err := stream.Recv()
			if err != nil {
				return err
			}
			h.Logger.LogAttrs(ctx, slog.LevelWarn, "ignored a request that this version does not answer",
				slog.String("stream", StreamFiles), slog.String("file", event.GetFile().GetName()))
		}
	}
}
