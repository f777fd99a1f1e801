//! Bounds on what a hostile template can cost.
//!
//! Fuel bounds the number of steps, but one step can double a string, so forty steps can ask for a terabyte.
//! The template is therefore rebuilt before it is compiled: every expression that makes a new value is
//! wrapped in a filter that measures the result against the [`Limits`](super::Limits). Expressions that only
//! pass values on are left alone.

use minijinja::machinery::ast::{self, BinOpKind, CallArg, Expr, Spanned, Stmt};
use minijinja::machinery::{Span, Token, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, State, Value};

use super::Limits;

/// Deepest nesting of lists and maps that a template may build.
pub(super) const MAX_DEPTH: usize = 64;
/// Most tokens within one tag: chains of operators nest the syntax tree as deep as they are long.
const MAX_TAG_TOKENS: usize = 1_000;
/// Most `elif` in one template, which nest too.
const MAX_ELIF: usize = 500;
/// Longest digits within a format string, which ask for that much padding.
const MAX_FORMAT_DIGITS: usize = 4;

/// Names of the measuring filters. A template that uses one by name measures once more.
pub(super) const CHECKED: &str = "cactus_checked";
pub(super) const STORED: &str = "cactus_stored";
pub(super) const CONCAT: &str = "cactus_concat";
pub(super) const MULTIPLY: &str = "cactus_multiply";

/// Detail of errors that are about a limit, so that they can be told from other errors.
const LIMIT_PREFIX: &str = "template limit: ";

pub(super) fn limit_error(what: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{LIMIT_PREFIX}{what}"))
}

/// Whether the error, or one beneath it, is about a limit.
pub(super) fn is_limit(error: &Error) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<Error>()
            && (error.kind() == ErrorKind::OutOfFuel
                || error
                    .detail()
                    .is_some_and(|d| d.starts_with(LIMIT_PREFIX) || d == "recursion limit exceeded"))
        {
            return true;
        }
        next = error.source();
    }
    false
}

/// What a rendering has used up.
#[derive(Debug, Default)]
struct Spent {
    bytes: usize,
    visits: usize,
}

/// Measures values against the limits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guard {
    limits: Limits,
    namespace_type: &'static str,
}

impl Guard {
    pub(super) fn new(limits: Limits) -> Result<Self, Error> {
        let namespace = minijinja::functions::namespace(None)?;
        let namespace_type = namespace.as_object().map_or("", |object| object.type_name());
        Ok(Self { limits, namespace_type })
    }

    /// Passes on a new value after adding its size to what was spent.
    pub(super) fn check(&self, state: &mut State<'_, '_>, value: Value) -> Result<Value, Error> {
        let spent = state.get_or_insert_extension(Spent::default());
        let own_bytes = match value.as_str() {
            Some(text) => text.len(),
            None => value.len().unwrap_or(0).saturating_mul(size_of::<Value>()),
        };
        self.spend(spent, own_bytes)?;
        let mut total = 0;
        self.measure(spent, &value, 0, &mut total)?;
        Ok(value)
    }

    /// Like [`check`](Self::check), for values put into a namespace: one that held a namespace, however deep,
    /// could contain itself.
    pub(super) fn check_stored(&self, state: &mut State<'_, '_>, value: Value) -> Result<Value, Error> {
        if self.is_namespace(&value) {
            return Err(limit_error("a namespace within a namespace".to_owned()));
        }
        self.check(state, value)
    }

    /// Adds text that is captured or written out.
    pub(super) fn check_text(&self, state: &mut State<'_, '_>, bytes: usize) -> Result<(), Error> {
        let spent = state.get_or_insert_extension(Spent::default());
        self.spend(spent, bytes)
    }

    /// Fails if a text that is about to be made would be too long.
    pub(super) fn check_length(&self, bytes: Option<usize>) -> Result<(), Error> {
        match bytes {
            Some(bytes) if bytes <= self.limits.value_bytes => Ok(()),
            _ => Err(limit_error(format!(
                "a value of more than {} bytes",
                self.limits.value_bytes
            ))),
        }
    }

    fn spend(&self, spent: &mut Spent, bytes: usize) -> Result<(), Error> {
        spent.bytes = spent.bytes.saturating_add(bytes);
        if spent.bytes > self.limits.total_bytes {
            return Err(limit_error(format!(
                "more than {} bytes made in all",
                self.limits.total_bytes
            )));
        }
        Ok(())
    }

    fn is_namespace(&self, value: &Value) -> bool {
        value
            .as_object()
            .is_some_and(|object| object.type_name() == self.namespace_type)
    }

    /// Adds up what the value would be written out: a list that holds one long text twice counts it twice.
    fn measure(&self, spent: &mut Spent, value: &Value, depth: usize, total: &mut usize) -> Result<(), Error> {
        spent.visits += 1;
        if spent.visits as u64 > self.limits.fuel.saturating_mul(10) {
            return Err(limit_error("too much work on nested values".to_owned()));
        }
        if depth > MAX_DEPTH {
            return Err(limit_error(format!("values nested deeper than {MAX_DEPTH}")));
        }
        let bytes = value.as_str().map_or(size_of::<Value>(), str::len);
        *total = total.saturating_add(bytes);
        self.check_length(Some(*total))?;
        match value.kind() {
            ValueKind::Seq | ValueKind::Iterable => {
                for item in value.try_iter()? {
                    self.measure_item(spent, &item, depth, total)?;
                }
            }
            ValueKind::Map => {
                for key in value.try_iter()? {
                    let item = value.get_item(&key)?;
                    self.measure_item(spent, &key, depth, total)?;
                    self.measure_item(spent, &item, depth, total)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn measure_item(&self, spent: &mut Spent, item: &Value, depth: usize, total: &mut usize) -> Result<(), Error> {
        if self.is_namespace(item) {
            return Err(limit_error("a namespace within a list, map or namespace".to_owned()));
        }
        self.measure(spent, item, depth + 1, total)
    }
}

/// Fails on a format string that asks for much padding.
pub(super) fn check_format(format: &str) -> Result<(), Error> {
    let longest = format.split(|c: char| !c.is_ascii_digit()).map(str::len).max();
    if longest > Some(MAX_FORMAT_DIGITS) || format.contains('*') {
        return Err(limit_error(format!(
            "numbers of more than {MAX_FORMAT_DIGITS} digits in a format string"
        )));
    }
    Ok(())
}

/// The template with `{% generation %}` blocks turned into `{% with %}` blocks, which the parser knows and
/// which scope their variables the same way. They only mark what a training mask covers.
///
/// # Errors
/// A syntax error, or tags that are too long or too deep to be parsed safely.
pub(super) fn prepare(source: &str, syntax: SyntaxConfig) -> Result<String, Error> {
    let mut out = String::with_capacity(source.len());
    let mut copied = 0;
    let mut in_tag = 0;
    let mut elifs = 0;
    let mut first_of_block = false;
    for token in tokenize(source, false, syntax) {
        let (token, span) = token?;
        match token {
            Token::TemplateData(_) | Token::VariableStart => in_tag = 0,
            Token::BlockStart => {
                in_tag = 0;
                first_of_block = true;
                continue;
            }
            Token::Ident(name) if first_of_block => {
                let replacement = match name {
                    "generation" => "with",
                    "endgeneration" => "endwith",
                    _ => name,
                };
                elifs += usize::from(name == "elif");
                let (start, end) = (span.start_offset as usize, span.end_offset as usize);
                // Spans are offsets of the source; the checks keep a wrong one from being a panic.
                if replacement != name && source.get(start..end) == Some(name) {
                    out.push_str(source.get(copied..start).unwrap_or_default());
                    out.push_str(replacement);
                    copied = end;
                }
            }
            _ => in_tag += 1,
        }
        first_of_block = false;
        if in_tag > MAX_TAG_TOKENS || elifs > MAX_ELIF {
            return Err(limit_error(format!(
                "more than {MAX_TAG_TOKENS} tokens in the tag on line {}, or more than {MAX_ELIF} `elif`",
                span.start_line
            )));
        }
    }
    out.push_str(source.get(copied..).unwrap_or_default());
    Ok(out)
}

/// The same template with every new value measured.
///
/// # Errors
/// Tags that load other templates, of which there are none.
pub(super) fn rebuild<'a>(stmt: &Stmt<'a>) -> Result<Stmt<'a>, Error> {
    Rebuild.stmt(stmt)
}

struct Rebuild;

fn filter<'a>(name: &'static str, expr: Option<Expr<'a>>, args: Vec<CallArg<'a>>, span: Span) -> Expr<'a> {
    Expr::Filter(Spanned::new(ast::Filter { name, expr, args }, span))
}

fn checked(expr: Expr<'_>) -> Expr<'_> {
    let span = expr.span();
    filter(CHECKED, Some(expr), Vec::new(), span)
}

impl Rebuild {
    fn body<'a>(&self, body: &[Stmt<'a>]) -> Result<Vec<Stmt<'a>>, Error> {
        body.iter().map(|stmt| self.stmt(stmt)).collect()
    }

    fn stmt<'a>(&self, stmt: &Stmt<'a>) -> Result<Stmt<'a>, Error> {
        Ok(match stmt {
            Stmt::Template(s) => Stmt::Template(Spanned::new(
                ast::Template {
                    children: self.body(&s.children)?,
                },
                s.span(),
            )),
            Stmt::EmitExpr(s) => {
                // A call that is written out at once may be a recursion of the loop, which the compiler
                // recognizes by its form; its value is measured as it is written.
                let expr = match &s.expr {
                    Expr::Call(call) => Expr::Call(self.call(call)?),
                    expr => self.expr(expr)?,
                };
                Stmt::EmitExpr(Spanned::new(ast::EmitExpr { expr }, s.span()))
            }
            Stmt::EmitRaw(s) => {
                // As an expression, text counts like any other output.
                let constant = Expr::Const(Spanned::new(
                    ast::Const {
                        value: Value::from(s.raw),
                    },
                    s.span(),
                ));
                Stmt::EmitExpr(Spanned::new(ast::EmitExpr { expr: constant }, s.span()))
            }
            Stmt::ForLoop(s) => Stmt::ForLoop(Spanned::new(
                ast::ForLoop {
                    target: self.target(&s.target)?,
                    iter: self.expr(&s.iter)?,
                    filter_expr: self.optional(s.filter_expr.as_ref())?,
                    recursive: s.recursive,
                    body: self.body(&s.body)?,
                    else_body: self.body(&s.else_body)?,
                },
                s.span(),
            )),
            Stmt::IfCond(s) => Stmt::IfCond(Spanned::new(
                ast::IfCond {
                    expr: self.expr(&s.expr)?,
                    true_body: self.body(&s.true_body)?,
                    false_body: self.body(&s.false_body)?,
                },
                s.span(),
            )),
            Stmt::WithBlock(s) => {
                let assignments = s
                    .assignments
                    .iter()
                    .map(|(target, expr)| Ok((self.target(target)?, self.expr(expr)?)))
                    .collect::<Result<_, Error>>()?;
                let block = ast::WithBlock {
                    assignments,
                    body: self.body(&s.body)?,
                };
                Stmt::WithBlock(Spanned::new(block, s.span()))
            }
            Stmt::Set(s) => {
                let expr = self.expr(&s.expr)?;
                let expr = match &s.target {
                    Expr::GetAttr(_) => filter(STORED, Some(expr), Vec::new(), s.span()),
                    _ => expr,
                };
                Stmt::Set(Spanned::new(
                    ast::Set {
                        target: self.target(&s.target)?,
                        expr,
                    },
                    s.span(),
                ))
            }
            Stmt::SetBlock(s) => {
                let filter = match &s.filter {
                    Some(filter) => self.expr(filter)?,
                    None => filter(CHECKED, None, Vec::new(), s.span()),
                };
                let block = ast::SetBlock {
                    target: self.target(&s.target)?,
                    filter: Some(filter),
                    body: self.body(&s.body)?,
                };
                Stmt::SetBlock(Spanned::new(block, s.span()))
            }
            Stmt::AutoEscape(s) => Stmt::AutoEscape(Spanned::new(
                ast::AutoEscape {
                    enabled: self.expr(&s.enabled)?,
                    body: self.body(&s.body)?,
                },
                s.span(),
            )),
            Stmt::FilterBlock(s) => Stmt::FilterBlock(Spanned::new(
                ast::FilterBlock {
                    filter: self.expr(&s.filter)?,
                    body: self.body(&s.body)?,
                },
                s.span(),
            )),
            Stmt::Block(s) => Stmt::Block(Spanned::new(
                ast::Block {
                    name: s.name,
                    required: s.required,
                    body: self.body(&s.body)?,
                },
                s.span(),
            )),
            Stmt::Import(_) | Stmt::FromImport(_) | Stmt::Extends(_) | Stmt::Include(_) => {
                let message = "a chat template cannot load other templates";
                return Err(Error::new(ErrorKind::SyntaxError, message));
            }
            Stmt::Macro(s) => Stmt::Macro(self.macro_decl(s)?),
            Stmt::CallBlock(s) => Stmt::CallBlock(Spanned::new(
                ast::CallBlock {
                    call: self.call(&s.call)?,
                    macro_decl: self.macro_decl(&s.macro_decl)?,
                },
                s.span(),
            )),
            Stmt::Continue(s) => Stmt::Continue(Spanned::new(ast::Continue, s.span())),
            Stmt::Break(s) => Stmt::Break(Spanned::new(ast::Break, s.span())),
            Stmt::Do(s) => Stmt::Do(Spanned::new(
                ast::Do {
                    call: self.call(&s.call)?,
                },
                s.span(),
            )),
        })
    }

    fn macro_decl<'a>(&self, s: &Spanned<ast::Macro<'a>>) -> Result<Spanned<ast::Macro<'a>>, Error> {
        let decl = ast::Macro {
            name: s.name,
            args: s
                .args
                .iter()
                .map(|arg| self.target(arg))
                .collect::<Result<_, Error>>()?,
            defaults: self.exprs(&s.defaults)?,
            body: self.body(&s.body)?,
        };
        Ok(Spanned::new(decl, s.span()))
    }

    /// An expression that is assigned to, whose form the compiler wants as it is.
    fn target<'a>(&self, expr: &Expr<'a>) -> Result<Expr<'a>, Error> {
        Ok(match expr {
            Expr::Var(s) => Expr::Var(Spanned::new(ast::Var { id: s.id }, s.span())),
            Expr::GetAttr(s) => Expr::GetAttr(Spanned::new(
                ast::GetAttr {
                    expr: self.target(&s.expr)?,
                    name: s.name,
                },
                s.span(),
            )),
            Expr::List(s) => Expr::List(Spanned::new(
                ast::List {
                    items: self.targets(&s.items)?,
                },
                s.span(),
            )),
            Expr::Tuple(s) => Expr::Tuple(Spanned::new(
                ast::Tuple {
                    items: self.targets(&s.items)?,
                },
                s.span(),
            )),
            other => self.expr(other)?,
        })
    }

    fn targets<'a>(&self, items: &[Expr<'a>]) -> Result<Vec<Expr<'a>>, Error> {
        items.iter().map(|item| self.target(item)).collect()
    }

    fn exprs<'a>(&self, items: &[Expr<'a>]) -> Result<Vec<Expr<'a>>, Error> {
        items.iter().map(|item| self.expr(item)).collect()
    }

    fn optional<'a>(&self, expr: Option<&Expr<'a>>) -> Result<Option<Expr<'a>>, Error> {
        expr.map(|expr| self.expr(expr)).transpose()
    }

    fn args<'a>(&self, args: &[CallArg<'a>]) -> Result<Vec<CallArg<'a>>, Error> {
        args.iter()
            .map(|arg| {
                Ok(match arg {
                    CallArg::Pos(expr) => CallArg::Pos(self.expr(expr)?),
                    CallArg::Kwarg(name, expr) => CallArg::Kwarg(name, self.expr(expr)?),
                    CallArg::PosSplat(expr) => CallArg::PosSplat(self.expr(expr)?),
                    CallArg::KwargSplat(expr) => CallArg::KwargSplat(self.expr(expr)?),
                })
            })
            .collect()
    }

    fn call<'a>(&self, s: &Spanned<ast::Call<'a>>) -> Result<Spanned<ast::Call<'a>>, Error> {
        // The compiler tells calls of functions and methods by the form of what is called.
        let expr = match &s.expr {
            Expr::GetAttr(method) => Expr::GetAttr(Spanned::new(
                ast::GetAttr {
                    expr: self.expr(&method.expr)?,
                    name: method.name,
                },
                method.span(),
            )),
            expr => self.expr(expr)?,
        };
        Ok(Spanned::new(
            ast::Call {
                expr,
                args: self.args(&s.args)?,
            },
            s.span(),
        ))
    }

    fn expr<'a>(&self, expr: &Expr<'a>) -> Result<Expr<'a>, Error> {
        Ok(match expr {
            Expr::Var(s) => Expr::Var(Spanned::new(ast::Var { id: s.id }, s.span())),
            Expr::Const(s) => Expr::Const(Spanned::new(ast::Const { value: s.value.clone() }, s.span())),
            Expr::Slice(s) => checked(Expr::Slice(Spanned::new(
                ast::Slice {
                    expr: self.expr(&s.expr)?,
                    start: self.optional(s.start.as_ref())?,
                    stop: self.optional(s.stop.as_ref())?,
                    step: self.optional(s.step.as_ref())?,
                },
                s.span(),
            ))),
            Expr::UnaryOp(s) => {
                let op = match s.op {
                    ast::UnaryOpKind::Not => ast::UnaryOpKind::Not,
                    ast::UnaryOpKind::Neg => ast::UnaryOpKind::Neg,
                };
                Expr::UnaryOp(Spanned::new(
                    ast::UnaryOp {
                        op,
                        expr: self.expr(&s.expr)?,
                    },
                    s.span(),
                ))
            }
            Expr::BinOp(s) => {
                let (left, right) = (self.expr(&s.left)?, self.expr(&s.right)?);
                match s.op {
                    BinOpKind::Concat => filter(CONCAT, Some(left), vec![CallArg::Pos(right)], s.span()),
                    BinOpKind::Mul => filter(MULTIPLY, Some(left), vec![CallArg::Pos(right)], s.span()),
                    op => {
                        let made = Expr::BinOp(Spanned::new(ast::BinOp { op, left, right }, s.span()));
                        if matches!(op, BinOpKind::Add) {
                            checked(made)
                        } else {
                            made
                        }
                    }
                }
            }
            Expr::Compare(s) => {
                let ops = s
                    .ops
                    .iter()
                    .map(|op| {
                        Ok(ast::CompareOp {
                            op: op.op,
                            expr: self.expr(&op.expr)?,
                        })
                    })
                    .collect::<Result<_, Error>>()?;
                Expr::Compare(Spanned::new(
                    ast::Compare {
                        expr: self.expr(&s.expr)?,
                        ops,
                    },
                    s.span(),
                ))
            }
            Expr::IfExpr(s) => Expr::IfExpr(Spanned::new(
                ast::IfExpr {
                    test_expr: self.expr(&s.test_expr)?,
                    true_expr: self.expr(&s.true_expr)?,
                    false_expr: self.optional(s.false_expr.as_ref())?,
                },
                s.span(),
            )),
            Expr::Filter(s) => {
                // Without an expression the filter takes captured output, which is measured first.
                let inner = match &s.expr {
                    Some(expr) => self.expr(expr)?,
                    None => filter(CHECKED, None, Vec::new(), s.span()),
                };
                let made = ast::Filter {
                    name: s.name,
                    expr: Some(inner),
                    args: self.args(&s.args)?,
                };
                checked(Expr::Filter(Spanned::new(made, s.span())))
            }
            Expr::Test(s) => Expr::Test(Spanned::new(
                ast::Test {
                    name: s.name,
                    expr: self.expr(&s.expr)?,
                    args: self.args(&s.args)?,
                },
                s.span(),
            )),
            Expr::GetAttr(s) => Expr::GetAttr(Spanned::new(
                ast::GetAttr {
                    expr: self.expr(&s.expr)?,
                    name: s.name,
                },
                s.span(),
            )),
            Expr::GetItem(s) => Expr::GetItem(Spanned::new(
                ast::GetItem {
                    expr: self.expr(&s.expr)?,
                    subscript_expr: self.expr(&s.subscript_expr)?,
                },
                s.span(),
            )),
            Expr::Call(s) => checked(Expr::Call(self.call(s)?)),
            Expr::List(s) => checked(Expr::List(Spanned::new(
                ast::List {
                    items: self.exprs(&s.items)?,
                },
                s.span(),
            ))),
            Expr::Tuple(s) => checked(Expr::Tuple(Spanned::new(
                ast::Tuple {
                    items: self.exprs(&s.items)?,
                },
                s.span(),
            ))),
            Expr::Map(s) => checked(Expr::Map(Spanned::new(
                ast::Map {
                    keys: self.exprs(&s.keys)?,
                    values: self.exprs(&s.values)?,
                },
                s.span(),
            ))),
        })
    }
}
