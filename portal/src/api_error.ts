// Errors for people, apart from the client: what needs no cluster may have them, too.

export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly code = "",
    readonly hint = "",
  ) {
    super(message);
  }
}
