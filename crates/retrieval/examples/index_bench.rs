//! Answers a benchmark over standard input and output, a line of JSON for each line: `benches/index.py` drives it beside others.
//!
//! `index_bench VECTORS.npy QUERIES.npy INDEX ENCODING THREADS` makes the index and tells how long that took. Then
//! `search K` asks every query, one after the other, `open` opens the index anew, `add DURABLE` adds one document, `filter K`
//! asks with a filter that holds for a hundredth.
#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use cactus_base::Pool;
use cactus_retrieval::{Document, Encoding, Filter, Id, IdKind, Index, Layout, Metric, Query, Reader, Recipe};
use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// `float32 [n, dim]` of an array that numpy wrote.
fn read_npy(path: &str) -> Result<(usize, Vec<f32>), Box<dyn Error>> {
    let mut file = BufReader::new(File::open(path)?);
    let mut start = [0; 10];
    file.read_exact(&mut start)?;
    let mut header = vec![0; usize::from(u16::from_le_bytes([start[8], start[9]]))];
    file.read_exact(&mut header)?;
    let header = String::from_utf8(header)?;
    let shape = header
        .split_once('(')
        .and_then(|(_, rest)| rest.split_once(')'))
        .ok_or("a shape")?
        .0;
    let dim = shape.split(',').nth(1).ok_or("two axes")?.trim().parse()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let floats = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b));
    Ok((dim, floats.collect()))
}

fn ms(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [vectors, queries, path, encoding, threads] = &arguments[..] else {
        return Err("expected VECTORS.npy QUERIES.npy INDEX ENCODING THREADS".into());
    };
    let encodings = [Encoding::Int8, Encoding::F32, Encoding::Binary];
    let encoding = encodings
        .into_iter()
        .find(|e| e.name() == encoding)
        .ok_or("an encoding")?;
    let path = Path::new(path);
    let pool = Arc::new(Pool::new(threads.parse()?));
    let (dim, vectors) = read_npy(vectors)?;
    let (_, queries) = read_npy(queries)?;

    let start = Instant::now();
    let layout = Layout {
        encoding,
        ids: IdKind::Number,
    };
    let mut index = Index::create(path, &Recipe::new("benchmark", dim, Metric::Cosine), layout)?;
    for (vector, number) in vectors.chunks_exact(dim).zip(0u64..) {
        index.add(Document::new(number, vector.to_vec()).with("bucket", (number % 100) as i64))?;
    }
    index.commit()?;
    println!(
        "{{\"build_ms\": {:.3}, \"bytes\": {}}}",
        ms(start),
        std::fs::metadata(path)?.len()
    );
    let mut next = (vectors.len() / dim) as u64;
    drop(vectors);
    let reader = index.reader()?.with_pool(pool);

    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["search" | "filter", k] => {
                let filter = (words[0] == "filter").then(|| Filter::eq("bucket", 7i64));
                let (mut times, mut found) = (Vec::new(), Vec::new());
                for query in queries.chunks_exact(dim) {
                    let start = Instant::now();
                    let hits = reader.search(&Query::Vector(query), filter.as_ref(), k.parse()?)?;
                    times.push(format!("{:.4}", ms(start)));
                    let ids = hits.iter().map(|hit| match &hit.id {
                        Id::Number(number) => number.to_string(),
                        Id::Text(_) => "null".to_owned(),
                    });
                    found.push(format!("[{}]", ids.collect::<Vec<_>>().join(", ")));
                }
                println!("{{\"ms\": [{}], \"ids\": [{}]}}", times.join(", "), found.join(", "));
            }
            ["open"] => {
                let start = Instant::now();
                let opened = Reader::open(path, None)?;
                println!(
                    "{{\"ms\": {:.4}, \"documents\": {}}}",
                    ms(start),
                    opened.size().documents
                );
            }
            ["add", durable] => {
                index.set_durable(durable == "1");
                let document = Document::new(next, queries[..dim].to_vec()).with_text("one more document");
                next += 1;
                let start = Instant::now();
                index.upsert(document)?;
                index.commit()?;
                println!("{{\"ms\": {:.4}}}", ms(start));
            }
            _ => return Err(format!("expected search, filter, open or add, found `{line}`").into()),
        }
    }
    Ok(())
}
